package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/unisink/unisink/examples"
	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// Forms of a run: what the pipeline writes to.
const (
	kafkaAndFiles = "kafka+files"
	allSinks      = "all" // PostgreSQL as well, and a resolver takes part
)

// Modes of the PostgreSQL sink.
const (
	prepared = "prepared"
	staged   = "staged"
)

// reaches says whether a form of a run comes by a fault point; if not, why.
func (c Config) reaches(point string) (yes bool, elsewhere string) {
	room, _, _ := strings.Cut(point, "/")
	switch room {
	case "file", "kafka", "state", "checkpoint":
		if c.Sinks == allSinks {
			return false, "a run with -sinks " + kafkaAndFiles + " is led there; here only chance leads to it"
		}
		return true, ""
	case "postgres":
		if c.Sinks != allSinks {
			return false, "a run with -sinks all is led there"
		}
		own := map[string][]string{
			prepared: {"postgres/before-finish", "postgres/after-finish"},
			staged:   {"postgres/before-move", "postgres/after-move", "postgres/before-drop", "postgres/after-drop"},
		}
		for mode, points := range own {
			if mode != c.Mode && slices.Contains(points, point) {
				return false, "a run with -mode " + mode + " is led there"
			}
		}
		return true, ""
	case "twophase":
		return false, "no adapter of these sinks has it: it is for sinks that users write with participant.TwoPhase"
	}
	return true, "" // a room that is new must be thought of
}

// deaths are points at which the pipeline dies in the middle of an epoch, before its vote or after the decision.
func (c Config) deaths(beforeVote bool) []string {
	switch {
	case beforeVote && c.Sinks == allSinks:
		// The branches are prepared side by side. Behind this one a branch is left that no vote names.
		return []string{"postgres/after-prepare"}
	case beforeVote:
		return []string{"file/after-fsync", "file/after-stage", "kafka/after-witness", "kafka/after-flush"}
	case c.Sinks == allSinks && c.Mode == staged:
		return []string{"file/before-link", "kafka/before-endtxn", "postgres/before-move", "postgres/after-move"}
	case c.Sinks == allSinks:
		return []string{"file/before-link", "kafka/before-endtxn", "postgres/before-finish", "postgres/after-finish"}
	}
	return []string{"file/before-manifest", "file/before-link", "kafka/before-endtxn", "kafka/before-proof"}
}

// database is the PostgreSQL server of a run.
type database struct {
	*services.PostgresServer
}

const (
	specFile  = "orders-all.yaml"
	reachFile = "orders-all-resolver.yaml"
)

// startDatabase starts a server with the table of the example.
func startDatabase(ctx context.Context) (_ *database, err error) {
	s, err := services.Postgres(ctx, services.PostgresConfig{})
	if err != nil {
		return nil, err
	}
	if _, err := s.Query(ctx, "postgres", examples.OrdersAllTable); err != nil {
		return nil, errors.Join(fmt.Errorf("make the table of the pipeline: %w", err), s.Close())
	}
	return &database{s}, nil
}

// setUpAll starts what only form "all" has.
func (r *trial) setUpAll(ctx context.Context, crew *child.Crew) (err error) {
	r.say("starting PostgreSQL %s, sink in mode %s, and a resolver", services.PostgresCurrent, r.c.Mode)
	if r.database, err = startDatabase(ctx); err != nil {
		return err
	}
	if err = r.layAll(); err == nil {
		r.resolver = r.newResolver(crew)
		err = r.resolver.start("")
	}
	if err != nil {
		return errors.Join(err, r.database.Close())
	}
	return nil
}

// layAll writes the files of the example into the run's directory and names the places in the environment, which the
// pipeline, the resolver and verify inherit.
func (r *trial) layAll() error {
	text := strings.Replace(string(examples.OrdersAll), "epoch: 200ms", "epoch: "+r.c.Epoch.String(), 1)
	for name, text := range map[string]string{specFile: text, reachFile: string(examples.OrdersAllReach)} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	for name, value := range map[string]string{
		"UNISINK_BROKERS": r.kafka.Addrs()[0], "UNISINK_STATE": filepath.Join(r.dir, stateDir), "ORDERS_FROM": topicIn, "ORDERS_TO": topicOut,
		"ORDERS_DIR": filepath.Join(r.dir, outputDir), "ORDERS_POSTGRES": r.database.DSN(), "ORDERS_MODE": r.c.Mode,
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// resolverIs is the resolver's process, and how it is started.
type resolverIs struct {
	crew *child.Crew
	spec child.Spec
	proc *child.Process
	// sudden are ends that nobody had asked for.
	sudden []string
	// wrong are those among them that no fault explains.
	wrong []string
}

func (r *trial) newResolver(crew *child.Crew) *resolverIs {
	args := []string{"resolver", filepath.Join(r.dir, reachFile), "--name", "torture", "--log-level", "debug", "--log-format", "json"}
	for _, a := range r.group.addresses() {
		args = append(args, "--coordinator", a)
	}
	return &resolverIs{crew: crew, spec: child.Spec{Name: "resolver", Path: r.c.FaultsBin, Args: args, Log: filepath.Join(r.dir, "resolver.log")}}
}

// start starts it with a plan of faults.
func (f *resolverIs) start(plan string) (err error) {
	s := f.spec
	s.Env = []string{faultEnv + "=" + plan}
	f.proc, err = f.crew.Start(s)
	return err
}

// revive starts it again where it has ended by itself.
func (f *resolverIs) revive() error {
	if f.proc.Alive() {
		return nil
	}
	f.sudden = append(f.sudden, fmt.Sprintf("%s: the resolver: %v", time.Now().Format(clock), f.proc.Err()))
	if why := rig.NeverMeant(f.proc.Err()); why != "" {
		f.wrong = append(f.wrong, "the resolver ended by itself: "+why)
	}
	return f.start("")
}

// killDatabase kills all processes of the server, and starts it again on the same data after a while.
func (r *trial) killDatabase(ctx context.Context, when trigger) error {
	err := r.at(ctx, when, func(*node) error {
		r.record(strike{What: killDatabase, At: time.Now()})
		return r.database.Kill()
	})
	if err != nil {
		return err
	}
	if err := rig.Sleep(ctx, time.Duration(r.rng.Int64N(int64(2*time.Second)))); err != nil {
		return err
	}
	return r.database.Restart(ctx)
}

// killResolver kills the resolver at some moment. Every third time it has something to do then: the pipeline dies right
// after a decision and stays away, and the resolver dies at one of the steps by which it finishes what is left; its
// successor must finish that before the pipeline comes back.
func (r *trial) killResolver(ctx context.Context, when trigger) error {
	r.done.resolverKills++
	if r.done.resolverKills%3 == 0 {
		return r.handOver(ctx)
	}
	err := r.at(ctx, when, func(*node) error {
		r.record(strike{What: killResolver, At: time.Now()})
		return r.resolver.proc.Kill()
	})
	if err != nil {
		return err
	}
	if err := rig.Sleep(ctx, time.Duration(r.rng.Int64N(int64(time.Second)))); err != nil {
		return err
	}
	return r.resolver.start("")
}

// finishIn is how long a resolver may take from the death of a process until nothing of it is unfinished: the lease must
// pass, and longer if the first try of one was bad.
const finishIn = 60 * time.Second

func (r *trial) handOver(ctx context.Context) error {
	points := []string{"kafka/before-endtxn", "kafka/after-endtxn", "file/before-link", "file/after-link", "postgres/before-finish", "postgres/after-finish"}
	if r.c.Mode == staged {
		points = append(points[:4], "postgres/before-move", "postgres/after-move")
	}
	point := points[r.rng.IntN(len(points))]
	if err := r.resolver.proc.Kill(); err != nil {
		return err
	}
	if err := r.resolver.start(point + "@1=crash"); err != nil {
		return err
	}
	release := r.worker.hold()
	defer release()
	if _, err := r.killRun(ctx, onDecision); err != nil {
		return err
	}
	died := false
	err := rig.Await(ctx, finishIn, "a resolver to finish what the pipeline has left", func() error {
		if !r.resolver.proc.Alive() {
			if killed(r.resolver.proc.Err()) && !died {
				died = true
				r.record(strike{What: killResolver, Point: point, At: time.Now()})
				if err := r.resolver.start(""); err != nil {
					return err
				}
			}
			if err := r.resolver.revive(); err != nil {
				return err
			}
		}
		if err := r.line.update(); err != nil {
			return err
		}
		if open := r.line.open(); len(open) > 0 {
			return fmt.Errorf("not proven: %s", strings.Join(open, ", "))
		}
		return nil
	})
	if err != nil || died {
		return err
	}
	// It did not come to that point, and must not later.
	r.record(strike{What: killResolver, At: time.Now()})
	if err := r.resolver.proc.Kill(); err != nil {
		return err
	}
	return r.resolver.start("")
}

// checkAll looks at what form "all" may not leave behind.
func (r *trial) checkAll(ctx context.Context, report *Report) error {
	left, err := rig.LeftPrepared(ctx, r.database.DSN())
	if err != nil {
		return err
	}
	doubt, err := rig.InDoubt(ctx, r.c.Binary, r.group.addresses())
	if err != nil {
		return err
	}
	report.Left = append(report.Left, append(left, doubt...)...)
	report.Sudden = append(report.Sudden, r.resolver.sudden...)
	report.Problems = append(report.Problems, r.resolver.wrong...)
	report.ByResolver, err = count(r.resolver.spec.Log, finishedLine)
	return err
}
