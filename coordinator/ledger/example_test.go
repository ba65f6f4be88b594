package ledger_test

import (
	"fmt"

	"github.com/unisink/unisink/coordinator/ledger"
)

// One pipeline with one member: a generation is opened, an epoch decided, its branch proven.
func ExampleMachine_Apply() {
	m := ledger.New()
	apply := func(b ledger.Body) ledger.Result {
		r, effects := m.Apply(ledger.Command{At: 1000, Actor: "example", Body: b})
		for _, e := range effects {
			fmt.Println("effect:", e.Kind, e.Scope, e.Epoch)
		}
		return r
	}
	apply(ledger.Init{Namespace: "demo", Incarnation: 1})
	apply(ledger.PutPipeline{Pipeline: ledger.Pipeline{Name: "orders", Members: []ledger.MemberSpec{
		{Name: "all", Resources: []ledger.ResourceSpec{{Name: "files", Kind: "file"}}},
	}}})
	scope := ledger.ScopeID{Pipeline: "orders"}
	r := apply(ledger.OpenGeneration{Scope: scope, Members: []ledger.MemberInstance{{Member: "all", Instance: "host-1"}}})
	epoch := ledger.Epoch{Generation: r.Opened.Generation, N: 1}
	apply(ledger.Decide{Scope: scope, Epoch: epoch, Votes: []ledger.Vote{{
		Member: "all", Instance: "host-1",
		Branches: []ledger.Prepared{{Resource: "files", Handle: ledger.Handle{Kind: "file", Name: "orders.0.all.files.1.1"}}},
	}}})
	for _, u := range m.Outstanding().Unfinished {
		fmt.Println("unfinished:", u.Txn, u.Branch)
	}
	apply(ledger.Resolve{
		Txn: ledger.EpochTxn(scope, epoch), Branch: ledger.BranchID{Member: "all", Resource: "files"},
		Proof: ledger.Proof{Verdict: ledger.ProvenCommitted, Evidence: "manifest 1.1"},
	})

	// Its generation closed, every epoch of it has its verdict.
	r = apply(ledger.CloseGeneration{Scope: scope, Generation: epoch.Generation, Cause: "lease of all"})
	fmt.Println("final:", r.Final)
	fmt.Println(m.EpochOutcome(scope, epoch), m.EpochOutcome(scope, ledger.Epoch{Generation: epoch.Generation, N: 2}))
	// Output:
	// effect: pipeline /0 0.0
	// effect: opened orders/0 1.0
	// effect: decided orders/0 1.1
	// unfinished: orders/0@1.1 all/files
	// effect: resolved orders/0 1.1
	// effect: closed orders/0 1.1
	// final: 1
	// committed aborted
}

func ExampleParseEpoch() {
	e, err := ledger.ParseEpoch("7.12")
	fmt.Println(e.Generation, e.N, err)
	_, err = ledger.ParseEpoch("7")
	fmt.Println(err)
	// Output:
	// 7 12 <nil>
	// bad name: "7" is no epoch; one looks like 7.12 (generation.number)
}
