package participant_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor/stream"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Two resources change together by one decision, without a pipeline.
func ExampleClient_Commit() {
	addr, stop, err := startCoordinator() // a group of one node
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	ctx := context.Background()
	client, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{addr}, Actor: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ns, err := client.Namespace(ctx)
	if err != nil {
		log.Fatal(err)
	}
	txn, err := participant.NewTxnID()
	if err != nil {
		log.Fatal(err)
	}

	// Prepare a branch in each resource.
	stores := map[string]*participanttest.Store{"orders": participanttest.NewStore("orders"), "stock": participanttest.NewStore("stock")}
	resources := map[string]*participanttest.Memory{}
	var branches []participant.HandBranch
	for _, name := range []string{"orders", "stock"} {
		r := stores[name].Process()
		b, err := r.Begin(ctx, participant.BranchName{Namespace: ns, Txn: txn, Resource: name})
		if err != nil {
			log.Fatal(err)
		}
		if err := b.(*participanttest.MemoryBranch).Write("one pair of shoes in " + name); err != nil {
			log.Fatal(err)
		}
		vote, err := b.Prepare(ctx)
		if err != nil || vote.Kind != participant.Yes {
			log.Fatal(vote.Reason, err)
		}
		resources[name] = r
		branches = append(branches, participant.HandBranch{Resource: name, Handle: vote.Handle})
	}

	// One call decides. From here on anybody who holds the handles may finish.
	outcome, err := client.Commit(ctx, txn, branches)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(outcome)
	for _, b := range branches {
		proof, err := resources[b.Resource].Commit(ctx, b.Handle)
		if err != nil {
			log.Fatal(err)
		}
		if err := client.Resolve(ctx, txn, b.Resource, proof); err != nil {
			log.Fatal(err)
		}
		fmt.Println(stores[b.Resource].Records()[0])
	}
	// Output:
	// committed
	// one pair of shoes in orders
	// one pair of shoes in stock
}

// A transaction from written branches to its end, in one call: prepare, one decision, commit or roll
// back, proofs. The resources are opened by hand first.
func ExampleClient_RunTxn() {
	addr, stop, err := startCoordinator() // a group of one node
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{addr}, Actor: "bank"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	// A directory and a store in memory: two kinds of resources. The process's name stays the same
	// over its restarts.
	dir, err := os.MkdirTemp("", "unisink-example-*")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	alice, err := file.NewSink(file.SinkConfig{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	bank := participanttest.NewStore("bob")
	bob := bank.Process()
	if err := client.Open(ctx, "teller-1", map[string]participant.Resource{"alice": alice, "bob": bob}); err != nil {
		log.Fatal(err)
	}
	ns, err := client.Namespace(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// Announced: if this process dies, the transaction is aborted in a minute, and operators see it.
	txn, err := participant.NewTxnID()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Begin(ctx, txn, []string{"alice", "bob"}, time.Minute); err != nil {
		log.Fatal(err)
	}
	from, err := alice.Begin(ctx, participant.BranchName{Namespace: ns, Txn: txn, Resource: "alice"})
	if err != nil {
		log.Fatal(err)
	}
	if err := from.(*file.Branch).Write(ctx, []stream.Record{{Value: []byte(`{"cents":-1250}`)}}); err != nil {
		log.Fatal(err)
	}
	to, err := bob.Begin(ctx, participant.BranchName{Namespace: ns, Txn: txn, Resource: "bob"})
	if err != nil {
		log.Fatal(err)
	}
	if err := to.(*participanttest.MemoryBranch).Write("12.50 from alice"); err != nil {
		log.Fatal(err)
	}

	outcome, err := client.RunTxn(ctx, txn, []participant.TxnBranch{
		{Name: "alice", Resource: alice, Branch: from}, {Name: "bob", Resource: bob, Branch: to},
	})
	switch {
	case errors.Is(err, participant.ErrOutcomeUnknown):
		log.Fatal("not decided as far as we know: run it again, with the same id and branches")
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println(outcome)
	fmt.Println(bank.Records())
	manifests, err := file.ReadManifests(nil, dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(manifests), "manifest,", manifests[0].Files[0].Records, "record")
	// Output:
	// committed
	// [12.50 from alice]
	// 1 manifest, 1 record
}

// numbers is a task that writes the numbers 1 to 5 and keeps how far it came as its position.
type numbers struct {
	done chan struct{} // closed when the five are in an epoch
	once sync.Once
	mu   sync.Mutex // guards the rest
	next int64
	run  participant.Run
}

func (n *numbers) Restore(_ context.Context, r participant.Restore) error {
	n.next = 1
	if len(r.Positions) > 0 {
		n.next = r.Positions[0].Offset
	}
	return nil
}

func (n *numbers) Start(ctx context.Context, s participant.Start) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.run = s.Run
	for ; n.next <= 5; n.next++ {
		branch, err := n.run.Branch(ctx, "out")
		if err != nil {
			return err
		}
		if err := branch.(*participanttest.MemoryBranch).Write(strconv.FormatInt(n.next, 10)); err != nil {
			return err
		}
	}
	n.run.HasWork() // there is something to make an epoch of
	return nil
}

// Barrier ends the epoch: what was written so far, and the position behind it, become one.
func (n *numbers) Barrier(ctx context.Context, b participant.Barrier) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := participant.Position{Resource: "numbers", Split: "0", Offset: n.next, LeaderEpoch: -1}
	if err := n.run.Vote(ctx, b, participant.Contribution{Positions: []participant.Position{at}}); err != nil {
		return err
	}
	n.once.Do(func() { close(n.done) })
	return nil
}

func (n *numbers) Halted(context.Context, string) error { return nil }

// A process takes part in a pipeline until the pipeline is stopped.
func ExampleMember() {
	addr, stop, err := startCoordinator() // a group of one node
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := participant.NewClient(participant.ClientConfig{Coordinators: []string{addr}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	_, err = client.Pipelines().PutPipeline(ctx, &unisinkv1.PutPipelineRequest{Meta: client.NewMeta(), Pipeline: &unisinkv1.Pipeline{
		Name: "count", Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: 50},
		Members: []*unisinkv1.MemberSpec{{Name: "all", Source: true, Resources: []*unisinkv1.ResourceSpec{{Name: "out", Kind: "memory"}}}},
	}})
	if err != nil {
		log.Fatal(err)
	}

	store := participanttest.NewStore("numbers")
	task := &numbers{done: make(chan struct{})}
	member, err := participant.NewMember(participant.MemberConfig{
		Coordinators: []string{addr}, Pipeline: "count", Member: "all",
		Resources: map[string]participant.Resource{"out": store.Process()},
	}, task)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- member.Run(ctx) }()

	<-task.done // the numbers are in an epoch; now stop the pipeline
	_, err = client.Pipelines().SetDesired(ctx, &unisinkv1.SetDesiredRequest{
		Meta: client.NewMeta(), Name: "count", Desired: unisinkv1.DesiredState_DESIRED_STATE_STOPPING,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("run:", <-ended)
	fmt.Println(store.Records())
	// Output:
	// run: <nil>
	// [1 2 3 4 5]
}
