package app

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// halted logs that a person must act, if the pipeline is halted, and returns the same as an error.
func halted(ctx context.Context, rc RunContext, name string) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(rc.Timeout, searchTime))
	defer cancel()
	cl, err := runClient(rc)
	if err != nil {
		return nil
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	r, err := cl.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: name})
	if err != nil {
		return nil
	}
	for _, s := range r.GetScopes() {
		if s.GetHalted() != "" {
			rc.Logger.ErrorContext(ctx, "halted; a person must act", slog.String("scope", scopeText(s.GetScope())), slog.String("cause", s.GetHalted()),
				slog.String("next", whatToDo(s)))
			return failf(CodeHuman, "scope %s is halted: %s; %s", scopeText(s.GetScope()), s.GetHalted(), whatToDo(s))
		}
	}
	return nil
}

// remindEvery is how often a process says again what it waits for.
const remindEvery = 5 * time.Minute

// tellWaiting logs what the process waits for, when that has lasted for a while, when it changes, and again
// at a slow interval: a second process under a living member's name looks as if it hung. Then it calls lasting.
func tellWaiting(ctx context.Context, log *slog.Logger, remind time.Duration, waiting func() string, lasting func()) {
	const every = 500 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	var at, since time.Time // when it was told last, and since when it is waited for
	last, told := "", ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := waiting()
		if now != last {
			last, since = now, time.Now()
			continue
		}
		if again := time.Since(at) >= remind; now != "" && (now != told || again) {
			at = time.Now()
			if now == told {
				log.InfoContext(ctx, "still waiting", slog.String("for", now), slog.Duration("since", time.Since(since).Truncate(time.Second)))
			} else {
				log.InfoContext(ctx, "waiting", slog.String("for", now))
			}
			lasting()
		}
		told = now
	}
}
