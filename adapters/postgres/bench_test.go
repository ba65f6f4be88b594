package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/participant"
)

// BenchmarkTwoBranches is a transaction over two databases of one server, one row each, without a
// coordinator: "adapter" through this package, "bare" by the same statements on bare connections.
func BenchmarkTwoBranches(b *testing.B) {
	rigs := []*rig{newRig(b, services.PostgresCurrent, Prepared), newRig(b, services.PostgresCurrent, Prepared)}
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("adapter/%d", clients), func(b *testing.B) {
			var n atomic.Uint64
			generationNow++
			databases := []*Database{rigs[0].opened(generationNow), rigs[1].opened(generationNow)}
			crowd(b, clients, func(ctx context.Context, _ int) error {
				at, handles := n.Add(1), make([]participant.Handle, 2)
				for i, d := range databases {
					name := epoch(generationNow, at)
					name.Member = []string{"one", "two"}[i]
					br, err := d.Begin(ctx, name)
					if err != nil {
						return err
					}
					if _, err := br.(*Branch).Exec(ctx, "INSERT INTO out VALUES ($1)", "x"); err != nil {
						return err
					}
					v, err := br.Prepare(ctx)
					if err != nil || v.Kind != participant.Yes {
						return fmt.Errorf("vote %d: %w, %w", v.Kind, v.Reason, err)
					}
					handles[i] = v.Handle
				}
				for i, d := range databases {
					if p, err := d.Commit(ctx, handles[i]); err != nil || p.Verdict != participant.Committed {
						return fmt.Errorf("verdict %d: %w", p.Verdict, err)
					}
				}
				return nil
			})
		})
		b.Run(fmt.Sprintf("bare/%d", clients), func(b *testing.B) {
			conns := make([][2]*pgx.Conn, clients)
			for i := range conns {
				for j, r := range rigs {
					c, err := pgx.Connect(b.Context(), r.dsn)
					if err != nil {
						b.Fatal(err)
					}
					defer func() { _ = c.Close(context.Background()) }()
					conns[i][j] = c
				}
			}
			var n atomic.Uint64
			crowd(b, clients, func(ctx context.Context, client int) error {
				at := n.Add(1)
				for i, c := range conns[client] {
					gid := fmt.Sprintf("bare.%d.%d", i, at)
					for _, sql := range []string{"BEGIN", "INSERT INTO out VALUES ('x')", "PREPARE TRANSACTION " + literal(gid)} {
						if _, err := c.Exec(ctx, sql); err != nil {
							return err
						}
					}
				}
				for i, c := range conns[client] {
					if _, err := c.Exec(ctx, fmt.Sprintf("COMMIT PREPARED 'bare.%d.%d'", i, at)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// generationNow is the newest that a benchmark opened: b.Run calls its function several times.
var generationNow uint64

// crowd has clients do b.N transactions in all.
func crowd(b *testing.B, clients int, do func(ctx context.Context, client int) error) {
	b.Helper()
	run := func(times int) {
		var left atomic.Int64
		left.Store(int64(times))
		var group sync.WaitGroup
		for c := range clients {
			group.Go(func() {
				for left.Add(-1) >= 0 {
					if err := do(b.Context(), c); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
	}
	run(10 * clients) // connections are made
	b.ResetTimer()
	run(b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
}
