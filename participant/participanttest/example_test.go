package participanttest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
)

// What a process has prepared outlives it, and whoever holds the handle may finish it.
func ExampleStore() {
	ctx := context.Background()
	store := participanttest.NewStore("shelf")
	first := store.Process()
	name := participant.BranchName{Namespace: participant.Namespace{Name: "shop", Incarnation: 1}, Txn: "t1", Resource: "shelf"}
	branch, err := first.Begin(ctx, name)
	if err != nil {
		log.Fatal(err)
	}
	if err := branch.(*participanttest.MemoryBranch).Write("a pair of shoes"); err != nil {
		log.Fatal(err)
	}
	vote, err := branch.Prepare(ctx)
	if err != nil {
		log.Fatal(err)
	}
	first.Crash()
	fmt.Println("prepared:", store.Prepared(), "visible:", store.Records())

	proof, err := store.Process().Commit(ctx, vote.Handle)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(proof.Verdict == participant.Committed, "visible:", store.Records())
	// Output:
	// prepared: [shop.t1.shelf] visible: []
	// true visible: [a pair of shoes]
}
