package coordinator_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func txnID(t *testing.T) string {
	t.Helper()
	id, err := participant.NewTxnID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func branches() []participant.HandBranch {
	return []participant.HandBranch{
		{Resource: "a", Handle: participant.Handle{Kind: "memory", Version: 1, Identity: "x", Alias: "a", Name: "n1"}},
		{Resource: "b", Handle: participant.Handle{Kind: "memory", Version: 1, Identity: "y", Alias: "b", Name: "n2"}},
	}
}

func TestAFollowerForwardsAndEveryNodeHoldsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		leader := c.Leader()
		for _, id := range c.IDs() {
			out, err := c.ClientAt(id).Commit(deadline(t, 10*time.Second), txnID(t), branches())
			if err != nil || out != participant.OutcomeCommitted {
				t.Errorf("commit through %s (leader is %s): %v, %v", id, leader, out, err)
			}
		}
		c.AssertSameState()
	})
}

func TestWhoAsksAFollowerAsksTheLeaderNextTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		leader := c.Leader()
		for _, id := range c.IDs() {
			client := c.ClientAt(id)
			for range 2 { // the first answer says who leads, and by the second that node is connected
				if _, err := client.Commit(deadline(t, 10*time.Second), txnID(t), branches()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if got := client.Router().Leader(); got != coordinatortest.Address(leader) {
				t.Errorf("after calls through %s node %s is asked, and %s leads", id, got, leader)
			}
		}
	})
}

func TestADecisionIsMadeOnceOverLeaderChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		client := c.Client()
		const callers, each = 8, 12
		outcomes := make([]map[string]participant.Outcome, callers)
		var wg sync.WaitGroup
		for i := range callers {
			outcomes[i] = map[string]participant.Outcome{}
			wg.Go(func() {
				for range each {
					id := txnID(t)
					out, err := client.Commit(deadline(t, 30*time.Second), id, branches())
					if err != nil {
						t.Errorf("commit %s: %v", id, err)
						return
					}
					outcomes[i][id] = out
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
		for range 3 {
			time.Sleep(700 * time.Millisecond)
			old := c.Leader()
			c.Isolate(old)
			time.Sleep(2 * time.Second)
			c.Heal(old)
		}
		wg.Wait()
		for _, m := range outcomes {
			for id, said := range m {
				now, err := client.Outcome(deadline(t, 30*time.Second), id)
				if err != nil || now != said {
					t.Errorf("transaction %s was answered %v and is %v now (%v)", id, said, now, err)
				}
			}
		}
		c.AssertSameState()
	})
}

func TestAnUnknownTransactionIsAbortedByTheQuestionAndStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		client := c.Client()
		id := txnID(t)
		if out, err := client.Outcome(deadline(t, 10*time.Second), id); err != nil || out != participant.OutcomeAborted {
			t.Fatalf("the question: %v, %v", out, err)
		}
		out, err := client.Commit(deadline(t, 10*time.Second), id, branches())
		if out == participant.OutcomeCommitted {
			t.Fatalf("committed after it was told aborted (%v)", err)
		}
	})
}

func TestAnAnnouncedTransactionIsAbortedAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		client := c.Client()
		id := txnID(t)
		if _, err := client.Begin(deadline(t, 10*time.Second), id, []string{"a", "b"}, 3*time.Second); err != nil {
			t.Fatal(err)
		}
		list := func() string {
			r, err := client.Transactions().ListTransactions(deadline(t, 10*time.Second), &unisinkv1.ListTransactionsRequest{})
			if err != nil || len(r.GetTransactions()) != 1 {
				t.Fatalf("list: %v, %v", r, err)
			}
			return r.GetTransactions()[0].GetOutcome().String()
		}
		if got := list(); got != "OUTCOME_PENDING" {
			t.Fatalf("before its deadline: %s", got)
		}
		time.Sleep(6 * time.Second)
		if got := list(); got != "OUTCOME_ABORTED" {
			t.Fatalf("after its deadline: %s", got)
		}
	})
}

func TestAllNodesKilledAtOnceForgetNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		client := c.Client()
		id := txnID(t)
		if out, err := client.Commit(deadline(t, 10*time.Second), id, branches()); err != nil || out != participant.OutcomeCommitted {
			t.Fatalf("commit: %v, %v", out, err)
		}
		for _, n := range c.IDs() {
			c.Crash(n)
		}
		_, err := client.Commit(deadline(t, 2*time.Second), txnID(t), branches())
		if err == nil {
			t.Fatal("a group that is down decided")
		}
		for _, n := range c.IDs() {
			c.Restart(n)
		}
		c.Leader()
		if out, err := client.Outcome(deadline(t, 30*time.Second), id); err != nil || out != participant.OutcomeCommitted {
			t.Fatalf("after all were killed: %v, %v", out, err)
		}
		c.AssertSameState()
	})
}

func TestAMinorityDecidesNothingAndSaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		client := c.Client()
		leader := c.Leader()
		for _, id := range c.IDs() {
			if id != leader {
				c.Crash(id)
			}
		}
		id := txnID(t)
		out, err := client.Commit(deadline(t, 5*time.Second), id, branches())
		if err == nil {
			t.Fatalf("one node of three decided %v", out)
		}
		if !errors.Is(err, participant.ErrOutcomeUnknown) && !errors.Is(err, context.DeadlineExceeded) {
			t.Logf("what the caller is told: %v", err)
		}
		for _, n := range c.IDs() {
			if n != leader {
				c.Restart(n)
			}
		}
		c.Leader()
		first, err := client.Outcome(deadline(t, 30*time.Second), id)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := client.Outcome(deadline(t, 30*time.Second), id); err != nil || again != first {
			t.Fatalf("the outcome was %v and is %v (%v)", first, again, err)
		}
		c.AssertSameState()
	})
}

func TestANodeThatIsNotBootstrappedSaysWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.StartNew(t, 1)
		st, err := c.Status("n1")
		if err != nil || st.GetState() != "not bootstrapped" || st.GetStateHash() != coordinatortest.EmptyHash() {
			t.Fatalf("status: %v, %v", st, err)
		}
		cl := c.ClientAt("n1")
		_, err = cl.Pipelines().ListPipelines(deadline(t, 5*time.Second), &unisinkv1.ListPipelinesRequest{})
		if err == nil || !strings.Contains(err.Error(), "cluster bootstrap") {
			t.Fatalf("a call to it: %v", err)
		}
	})
}

func TestBootstrapIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		cl := c.ClientAt("n2")
		_, err := cl.Cluster().Bootstrap(deadline(t, 5*time.Second), &unisinkv1.BootstrapRequest{
			Meta: cl.NewMeta(), Namespace: "other", Nodes: []*unisinkv1.Node{{Id: "n2", RaftAddress: "n2", ClientAddress: "n2:7400"}},
		})
		if status.Code(err) != codes.AlreadyExists {
			t.Fatalf("a second bootstrap: %v", err)
		}
	})
}

// TestABootstrapRepeatedFindsItDone: the answer may have been lost, so the same question gets it again,
// from whichever node is asked; another question is refused.
func TestABootstrapRepeatedFindsItDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		c.AssertSameState()
		nodes := func() []*unisinkv1.Node {
			var out []*unisinkv1.Node
			for _, id := range c.IDs() {
				out = append(out, &unisinkv1.Node{Id: id, RaftAddress: id, ClientAddress: coordinatortest.Address(id)})
			}
			return out
		}
		moved := nodes()
		moved[1].ClientAddress = "elsewhere:1"
		for _, id := range c.IDs() {
			cl := c.ClientAt(id)
			ask := func(namespace string, nodes []*unisinkv1.Node) error {
				_, err := cl.Cluster().Bootstrap(deadline(t, 5*time.Second), &unisinkv1.BootstrapRequest{
					Meta: cl.NewMeta(), Namespace: namespace, Nodes: nodes,
				})
				return err
			}
			if err := ask(coordinatortest.Namespace, nodes()); err != nil {
				t.Errorf("%s, the same again: %v", id, err)
			}
			for name, err := range map[string]error{
				"another name":  ask("other", nodes()),
				"one node more": ask(coordinatortest.Namespace, append(nodes(), &unisinkv1.Node{Id: "n4", RaftAddress: "n4", ClientAddress: "n4:7400"})),
				"moved":         ask(coordinatortest.Namespace, moved),
				"itself alone":  ask(coordinatortest.Namespace, []*unisinkv1.Node{{Id: id, RaftAddress: id, ClientAddress: coordinatortest.Address(id)}}),
			} {
				if status.Code(err) != codes.AlreadyExists || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s, %s: %v", id, name, err)
				}
			}
		}
		c.AssertSameState()
	})
}

// TestACommandThatIsTooLargeIsTheCallersMistake: no node will ever take it, so no other is asked.
func TestACommandThatIsTooLargeIsTheCallersMistake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		cl := c.Client()
		large := branches()
		large[0].Handle.Text = strings.Repeat("x", 2<<20)
		_, err := cl.Commit(deadline(t, 20*time.Second), txnID(t), large)
		if reason, _ := grpcerr.Reason(err); status.Code(err) != codes.InvalidArgument || reason != grpcerr.Invalid {
			t.Fatalf("it is told %v", err)
		}
		if errors.Is(err, participant.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "too large") {
			t.Errorf("it is told %v", err)
		}
	})
}

func TestABadBootstrapIsRefusedInOneSentence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.StartNew(t, 1)
		cl := c.ClientAt("n1")
		good := &unisinkv1.Node{Id: "n1", RaftAddress: "n1", ClientAddress: "n1:7400"}
		for name, req := range map[string]*unisinkv1.BootstrapRequest{
			"bad namespace": {Namespace: "not.good", Nodes: []*unisinkv1.Node{good}},
			"not in list":   {Namespace: "test", Nodes: []*unisinkv1.Node{{Id: "n2", RaftAddress: "n2", ClientAddress: "n2:7400"}}},
			"no address":    {Namespace: "test", Nodes: []*unisinkv1.Node{{Id: "n1"}}},
		} {
			req.Meta = cl.NewMeta()
			_, err := cl.Cluster().Bootstrap(deadline(t, 5*time.Second), req)
			if reason, _ := grpcerr.Reason(err); reason != grpcerr.Invalid || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestWatchersSeeDecisionsAsTheyHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinatortest.Start(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := c.ClientAt(c.Leader()).Events().Watch(ctx, &unisinkv1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		id := txnID(t)
		if _, err := c.Client().Commit(deadline(t, 10*time.Second), id, branches()); err != nil {
			t.Fatal(err)
		}
		for {
			e, err := stream.Recv()
			if err != nil {
				t.Fatalf("the decision was not seen: %v", err)
			}
			if e.GetKind() == unisinkv1.EventKind_EVENT_KIND_TRANSACTION && e.GetText() == id {
				return
			}
		}
	})
}
