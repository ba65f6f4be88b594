package session

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// instantLog applies at once, so that what is measured is this package and the ledger.
type instantLog struct{ *fakeLog }

func (l instantLog) Propose(_ context.Context, c ledger.Command) (ledger.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	res, _ := l.m.Apply(c)
	return res, nil
}
func (l instantLog) Barrier(context.Context) error   { return nil }
func (l instantLog) View(read func(*ledger.Machine)) { l.view(read) }

// soloScopes brings n pipelines of one member to running.
func soloScopes(b *testing.B, n int) (m *Manager, ids []*unisinkv1.Scope) {
	b.Helper()
	log := instantLog{&fakeLog{m: ledger.New()}}
	put := func(body ledger.Body) {
		if res, _ := log.Propose(b.Context(), ledger.Command{Body: body, At: 1}); !res.OK() {
			b.Fatal(res.Text)
		}
	}
	put(ledger.Init{Namespace: "bench", Incarnation: 1})
	m = New(Config{Log: log})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.Lead(ctx, 1) }()
	b.Cleanup(func() { cancel(); <-ended })
	for m2, err := m.current(); err != nil || m2 == nil; m2, err = m.current() {
		runtime.Gosched()
	}
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		put(ledger.PutPipeline{Pipeline: ledger.Pipeline{
			Name: name, Settings: ledger.Settings{Lease: 3_600_000, MaxPending: 64},
			Members: []ledger.MemberSpec{{Name: "all", Source: true, Resources: []ledger.ResourceSpec{{Name: "out", Kind: "memory"}}}},
		}})
		req := attachRequest("all", "a")
		req.Scope = &unisinkv1.Scope{Pipeline: name}
		o := &orders{ctx: ctx, out: make(chan *unisinkv1.Order, 8)}
		go func() { _ = m.Attach(req, o) }()
		for x := range o.out {
			if x.GetRestore() != nil {
				break
			}
		}
		if _, err := m.Ready(ctx, &unisinkv1.ReadyRequest{Scope: req.GetScope(), Member: "all", Instance: "a", Generation: uint64(i + 1)}); err != nil {
			b.Fatal(err)
		}
		go func() {
			for { // reads on, so that the stream is never behind
				select {
				case <-o.out:
				case <-ctx.Done():
					return
				}
			}
		}()
		ids = append(ids, req.GetScope())
	}
	return m, ids
}

func BenchmarkDecideSolo(b *testing.B) {
	m, ids := soloScopes(b, 1)
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		n++
		v := yes("all", 1, n)
		v.ProvenThrough = n - 1
		resp, err := m.Decide(b.Context(), &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{Scope: ids[0], Member: "all", Instance: "a", Vote: v}})
		if err != nil || resp.GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
			b.Fatalf("%v %v", resp, err)
		}
	}
}

func BenchmarkMemoryOfIdleScopes(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		m, ids := soloScopes(b, 1000)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/float64(len(ids)), "B/scope")
		runtime.KeepAlive(m)
	}
}
