package pairs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/unisink/unisink/adapters/postgres"
	"github.com/unisink/unisink/cmd/bench/stats"
	"github.com/unisink/unisink/participant"
)

// ours has clients run transactions by hand, one after the other each, for the time of a pass.
func (l *lab) ours(ctx context.Context, clients int) (p pass, err error) {
	stop, err := l.profile(clients)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	took, errs := make([][]float64, clients), make([]error, clients)
	began := time.Now()
	end := began.Add(l.c.Duration)
	var crowd sync.WaitGroup
	for i := range clients {
		crowd.Go(func() {
			for errs[i] == nil && time.Now().Before(end) {
				at := time.Now()
				if errs[i] = l.transaction(ctx); errs[i] == nil {
					took[i] = append(took[i], stats.Milliseconds(time.Since(at)))
				}
			}
		})
	}
	crowd.Wait()
	lasted := time.Since(began).Seconds()
	var all []float64
	for _, t := range took {
		all = append(all, t...)
	}
	p = pass{done: len(all), perS: float64(len(all)) / lasted}
	p.p50, p.p99 = stats.MiddleAndEnd(all)
	return p, errors.Join(errs...)
}

// transaction is one: a row in each database, side by side, and one decision.
func (l *lab) transaction(ctx context.Context) error {
	txn, err := l.group.Client.NewTxnID()
	if err != nil {
		return err
	}
	branches, errs := make([]participant.TxnBranch, len(l.names)), make([]error, len(l.names))
	var writers sync.WaitGroup
	for i, name := range l.names {
		writers.Go(func() {
			b, err := l.resources[name].Begin(ctx, participant.BranchName{Namespace: l.ns, Txn: txn, Resource: name})
			if err == nil {
				branches[i] = participant.TxnBranch{Name: name, Resource: l.resources[name], Branch: b}
				_, err = b.(*postgres.Branch).Exec(ctx, "INSERT INTO "+name+" VALUES ($1)", rowText)
			}
			errs[i] = err
		})
	}
	writers.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	out, err := l.group.Client.RunTxn(ctx, txn, branches)
	if err == nil && out != participant.OutcomeCommitted {
		err = fmt.Errorf("transaction %s was %s", txn, out)
	}
	return err
}

// rowText is the row that both sides write.
const rowText = "twenty bytes of text"

// profile begins to note where this process spends its time, if that was asked for.
func (l *lab) profile(clients int) (stop func() error, err error) {
	if l.c.Profile == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(l.c.Profile, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for profiles: %w", err)
	}
	f, err := os.Create(filepath.Join(l.c.Profile, fmt.Sprintf("postgres-%d.cpu", clients)))
	if err != nil {
		return nil, fmt.Errorf("write a profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("write a profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
