package ledger

import (
	"fmt"
	"testing"
)

// BenchmarkApplyDecide: one decision costs the same whatever lies behind it and beside it.
func BenchmarkApplyDecide(b *testing.B) {
	for _, c := range []struct{ history, idle int }{{10, 0}, {10_000, 0}, {10, 10_000}, {10_000, 10_000}} {
		b.Run(fmt.Sprintf("history=%d/idle=%d", c.history, c.idle), func(b *testing.B) {
			m := New()
			must := func(body Body) {
				if r, _ := m.Apply(Command{At: 1000, Body: body}); !r.OK() {
					b.Fatal(r.Text)
				}
			}
			must(Init{Namespace: "bench", Incarnation: 1})
			for i := range c.idle {
				name := fmt.Sprintf("idle%d", i)
				must(PutPipeline{Pipeline: twoMembers(name)})
				must(opening(name, 0, "1"))
			}
			must(PutPipeline{Pipeline: twoMembers("p")})
			must(opening("p", 0, "1"))
			g, _ := m.Newest(ScopeID{Pipeline: "p"})
			n := uint64(0)
			next := func() Command {
				n++
				return Command{At: 1000, Request: "r", Body: deciding("p", Epoch{g.Generation, n}, "1", n-min(n, 2))}
			}
			for range c.history {
				must(next().Body)
			}
			b.ReportAllocs()
			for k := 0; b.Loop(); k++ {
				b.StopTimer()
				if k%1000 == 999 && c.history < 1000 { // keep the short history short
					must(Retire{})
				}
				c := next()
				b.StartTimer()
				if r, _ := m.Apply(c); !r.OK() {
					b.Fatal(r.Text)
				}
			}
		})
	}
}

// BenchmarkState is what a snapshot holds the log up for.
func BenchmarkState(b *testing.B) {
	m := New()
	m.Apply(Command{At: 1000, Body: Init{Namespace: "bench", Incarnation: 1}})
	for i := range 1000 {
		name := fmt.Sprintf("p%d", i)
		m.Apply(Command{At: 1000, Body: PutPipeline{Pipeline: twoMembers(name)}})
		r, _ := m.Apply(Command{At: 1000, Body: opening(name, 0, "1")})
		for n := range uint64(5) {
			m.Apply(Command{At: 1000, Body: deciding(name, Epoch{r.Opened.Generation, n + 1}, "1", n)})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		m.State()
	}
}
