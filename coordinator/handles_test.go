package coordinator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// pretending is the context of a call that says a node has handed it on, for root.
func pretending(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx,
		"unisink-forwarded", "n2", "unisink-caller", "certificate CN=root", "unisink-caller-name-bin", "root", "unisink-caller-role", "admin")
}

func forged(request string) *unisinkv1.Meta {
	return &unisinkv1.Meta{RequestId: request, Actor: "root"}
}

func named(name string) *unisinkv1.Handle {
	return &unisinkv1.Handle{Kind: "memory", Version: 1, Identity: "i", Alias: "out", Name: name}
}

// Row L9. A client that is allowed transactions by hand hands in names of what is not its own, raw, and says that it
// is somebody else.
func TestL9_AHandleOfSomebodyElseIsNotDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := certify(t)
		c := coordinatortest.StartSecure(t, 3, dir, "root", nil)
		ns := coordinatortest.Namespace
		cl := c.ClientWith(coordinatortest.Secure(t, dir, "shop"), coordinatortest.Address(c.Leader()))
		raw := unisinkv1.NewTransactionsClient(cl.Router())
		other, txn := txnID(t), txnID(t)
		for name, says := range map[string]string{
			ns + ".orders.0.main.out.1.7":            "scope orders/0 instead of transaction " + txn,
			ns + ".orders.0.main.out.1.2|4711|3":     "scope orders/0 instead of transaction " + txn, // as Kafka's are
			ns + "." + other + ".out":                "transaction " + other + " instead of transaction " + txn,
			ns + "." + other + ".out#3":              "transaction " + other + " instead of transaction " + txn,
			ns + "." + txn + ".in":                   "resource in instead of out",
			"elsewhere." + txn + ".out":              "namespace elsewhere instead of " + ns,
			ns + "~2." + txn + ".out":                "namespace " + ns + "~2 instead of " + ns,
			"elsewhere._hand.0.teller.out.170.0|8|0": "namespace elsewhere instead of " + ns,
			// As Kafka's are by hand.
			ns + "." + other + ".out|" + ns + "._hand.0.teller.out.170.0|8|0": "transaction " + other + " instead of transaction " + txn,
			ns + "." + txn + ".out|" + ns + ".orders.0.main.out.1.2|8|0":      "scope orders/0 instead of transaction " + txn,
		} {
			branches := []*unisinkv1.HandBranch{{Resource: "out", Handle: named(name)}}
			for i, call := range []func(context.Context) error{
				func(ctx context.Context) error {
					_, err := raw.Commit(ctx, &unisinkv1.CommitRequest{Meta: forged(name), Txn: txn, Branches: branches})
					return err
				},
				func(ctx context.Context) error { // at its deadline it would be rolled back
					_, err := raw.Begin(ctx, &unisinkv1.BeginRequest{Meta: forged(name), Txn: txn, Branches: branches, TimeoutMs: 1000})
					return err
				},
			} {
				for _, ctx := range []context.Context{deadline(t, 5*time.Second), pretending(deadline(t, 5*time.Second))} {
					if err := call(ctx); !refusedAs(err, grpcerr.Invalid) || !strings.Contains(err.Error(), says) {
						t.Errorf("call %d with the handle %s: %v, want %q", i, name, err, says)
					}
				}
			}
		}
		if _, err := raw.GetTransaction(deadline(t, 5*time.Second), &unisinkv1.GetTransactionRequest{Txn: txn}); !refusedAs(err, grpcerr.NotFound) {
			t.Errorf("something is in the ledger: %v", err)
		}
		for _, name := range []string{ns + "." + txn + ".out", ns + "._hand.0.teller.out.1764.3|8|0", "a-name-of-the-adapters-own", ""} {
			if name == "" {
				name = ns + "." + txn + ".out|" + ns + "._hand.0.teller.out.1764.3|8|0"
			}
			out, err := raw.Commit(deadline(t, 5*time.Second), &unisinkv1.CommitRequest{
				Meta: forged(name), Txn: txn, Branches: []*unisinkv1.HandBranch{{Resource: "out", Handle: named(name)}},
			})
			if err != nil || out.GetOutcome() != unisinkv1.Outcome_OUTCOME_COMMITTED {
				t.Errorf("the handle %s: %v, %v", name, out, err)
			}
			txn = txnID(t)
		}
	})
}

// Row L9. A member that has the right certificate for its pipeline votes with the name of a branch of another.
func TestL9_AVoteWithAHandleOfSomebodyElseHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := certify(t)
		c := coordinatortest.StartSecure(t, 3, dir, "root", nil)
		ns := coordinatortest.Namespace
		if err := putOrders(t, c.Client()); err != nil {
			t.Fatal(err)
		}
		cl := c.ClientWith(coordinatortest.Secure(t, dir, "worker"), coordinatortest.Address(c.Leader()))
		raw := unisinkv1.NewSessionClient(cl.Router())
		scope := &unisinkv1.Scope{Pipeline: "orders"}
		g := started(t, raw, scope)
		name := fmt.Sprintf("%s.bills.0.main.out.%d.1", ns, g)
		_, err := raw.Decide(pretending(deadline(t, 5*time.Second)), &unisinkv1.DecideRequest{Vote: &unisinkv1.VoteRequest{
			Meta: forged("v"), Scope: scope, Member: "main", Instance: "one", Vote: &unisinkv1.Vote{
				Epoch: &unisinkv1.Epoch{Generation: g, N: 1}, Kind: unisinkv1.VoteKind_VOTE_KIND_YES,
				Branches: []*unisinkv1.Prepared{{Resource: "out", Handle: named(name)}},
			},
		}})
		if says := "scope bills/0 instead of orders/0"; !refusedAs(err, grpcerr.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("the vote was answered %v, want %q", err, says)
		}
		time.Sleep(time.Second)
		p, err := c.Client().Pipelines().GetPipeline(deadline(t, 5*time.Second), &unisinkv1.GetPipelineRequest{Name: "orders"})
		if err != nil || !strings.Contains(p.GetScopes()[0].GetHalted(), "scope bills/0 instead of orders/0") || p.GetScopes()[0].GetFinal() != 0 {
			t.Errorf("the scope is %v, %v", p, err)
		}
	})
}

// started attaches the one member of orders and brings it to its start; it answers with the generation.
func started(t *testing.T, raw unisinkv1.SessionClient, scope *unisinkv1.Scope) uint64 {
	t.Helper()
	stream, err := raw.Attach(t.Context(), &unisinkv1.AttachRequest{
		Scope: scope, Member: "main", Instance: "one", Fingerprint: "f", Standing: &unisinkv1.Standing{Phase: unisinkv1.Phase_PHASE_IDLE},
		Resources: []*unisinkv1.ResourceInfo{{Name: "out", Kind: "memory", Identity: "i", HasBranches: true}},
	})
	for err == nil {
		var o *unisinkv1.Order
		if o, err = stream.Recv(); err != nil {
			break
		}
		if s := o.GetStart(); s != nil {
			return s.GetGeneration()
		}
		if r := o.GetRestore(); r != nil {
			_, err = raw.Ready(t.Context(), &unisinkv1.ReadyRequest{
				Meta: &unisinkv1.Meta{RequestId: "ready"}, Scope: scope, Member: "main", Instance: "one", Generation: r.GetGeneration(),
			})
		}
	}
	t.Fatal(err)
	return 0
}

// What a client says of itself, or of whom it calls for, is not what the trail of acts tells.
func TestTheTrailTellsWhoItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := certify(t)
		c := coordinatortest.StartSecure(t, 3, dir, "root", nil)
		if err := putOrders(t, c.Client()); err != nil {
			t.Fatal(err)
		}
		stop := func(name, at string) error {
			cl := c.ClientWith(coordinatortest.Secure(t, dir, name), coordinatortest.Address(at))
			_, err := unisinkv1.NewPipelinesClient(cl.Router()).SetDesired(pretending(deadline(t, 5*time.Second)), &unisinkv1.SetDesiredRequest{
				Meta: forged("stop " + name), Name: "orders", Desired: unisinkv1.DesiredState_DESIRED_STATE_STOPPING,
			})
			return err
		}
		leader := c.Leader()
		if err := stop("vera", leader); !refusedAs(err, grpcerr.NotAllowed) {
			t.Errorf("a viewer that pretends to hand on an admin's call: %v", err)
		}
		if err := stop("olga", leader); err != nil {
			t.Error(err)
		}
		acts, err := unisinkv1.NewAuditClient(c.Client().Router()).List(deadline(t, 5*time.Second), &unisinkv1.AuditListRequest{Pipeline: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		var who []string
		for _, a := range acts.GetActs() {
			if a.GetActor() == "coordinator" {
				continue // it has come to its end
			}
			who = append(who, a.GetKind()+" by "+a.GetActor())
		}
		if got := strings.Join(who, ", "); got != "put pipeline by root, set desired state by olga" {
			t.Errorf("the trail has %s", got)
		}
	})
}
