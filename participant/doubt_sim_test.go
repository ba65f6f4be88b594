package participant_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// doubted starts two members of one pipeline over a store each, on real nodes, with long votes.
func doubted(t *testing.T) (c *coordinatortest.Cluster, client *participant.Client, stores [2]*participanttest.Store, workers [2]*process) {
	t.Helper()
	c = coordinatortest.Start(t, 3)
	client = c.Client()
	spec := &unisinkv1.Pipeline{Name: pipeline, Fingerprint: "f1", Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: 100, PrepareTimeoutMs: 600_000}}
	names := [2]string{"one", "two"}
	for _, name := range names {
		spec.Members = append(spec.Members, &unisinkv1.MemberSpec{
			Name: name, Source: true, Resources: []*unisinkv1.ResourceSpec{{Name: "out", Kind: "memory"}},
		})
	}
	if _, err := client.Pipelines().PutPipeline(t.Context(), &unisinkv1.PutPipelineRequest{Meta: client.NewMeta(), Pipeline: spec}); err != nil {
		t.Fatal(err)
	}
	g := &group{t: t}
	at := func(cfg *participant.MemberConfig) { cfg.Coordinators, cfg.Dial = c.Addresses(), c.Dial }
	for i, name := range names {
		stores[i] = participanttest.NewStore(name)
		workers[i] = g.run(name, stores[i], at)
	}
	within(t, 10*time.Second, "the first epochs", func() bool { return len(stores[0].Records()) > 20 })
	return c, client, stores, workers
}

func doubts(t *testing.T, client *participant.Client) []*unisinkv1.Transaction {
	t.Helper()
	r, err := client.Transactions().ListTransactions(t.Context(), &unisinkv1.ListTransactionsRequest{InDoubt: true})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetTransactions()
}

func abort(t *testing.T, client *participant.Client, txn, why string) (unisinkv1.Outcome, error) {
	t.Helper()
	r, err := client.Transactions().Abort(t.Context(), &unisinkv1.AbortRequest{Meta: client.NewMeta(), Txn: txn, Why: why})
	return r.GetOutcome(), err
}

// An epoch waits for a vote that does not come. It is listed as undecided with who blocks it, an operator
// aborts it, and the pipeline goes on from its restore point.
func TestL1_AnUndecidedEpochIsListedAndAborted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, client, stores, workers := doubted(t)
		release := make(chan struct{})
		workers[1].memory.SetHook(func(ctx context.Context, call participanttest.Call, when participanttest.When, _ string) error {
			if call == participanttest.CallPrepare && when == participanttest.Before {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		})
		var open *unisinkv1.Transaction
		within(t, 10*time.Second, "an epoch that is blocked by member two alone", func() bool {
			for _, x := range doubts(t, client) {
				if x.GetOutcome() == unisinkv1.Outcome_OUTCOME_PENDING && len(x.GetBlockedBy()) == 1 && strings.HasPrefix(x.GetBlockedBy()[0], "member two") {
					open = x
					return true
				}
			}
			return false
		})
		time.Sleep(20 * time.Second)
		r, err := client.Transactions().GetTransaction(t.Context(), &unisinkv1.GetTransactionRequest{Txn: open.GetTxn()})
		if got := r.GetTransaction(); err != nil || got.GetAgeMs() < 20_000 || got.GetLeftMs() <= 0 || got.GetNext() == "" {
			t.Errorf("shown: %v, %v", got, err)
		}
		if _, err := abort(t, client, open.GetTxn(), ""); err == nil {
			t.Error("aborted without a reason")
		}
		visible := len(stores[0].Records())
		for range 2 { // the second is a repeat by another person
			if out, err := abort(t, client, open.GetTxn(), "two hangs"); err != nil || out != unisinkv1.Outcome_OUTCOME_ABORTED {
				t.Fatalf("abort: %s, %v", out, err)
			}
		}
		close(release)
		workers[1].memory.SetHook(nil)
		within(t, 30*time.Second, "epochs of the next generation", func() bool { return len(stores[0].Records()) > visible+20 })
		if workers[0].restored() != 2 {
			t.Errorf("restored %d times", workers[0].restored())
		}
		p, err := client.Pipelines().GetPipeline(t.Context(), &unisinkv1.GetPipelineRequest{Name: pipeline})
		if err != nil {
			t.Fatal(err)
		}
		decided := p.GetScopes()[0]
		epochName := func(generation, n uint64) string { return fmt.Sprintf("%s/0@%d.%d", pipeline, generation, n) }
		_, err = abort(t, client, epochName(decided.GetGeneration(), decided.GetFinal()), "too late")
		if err == nil || !strings.Contains(err.Error(), "is committed, which nothing can change") {
			t.Errorf("abort of a decided epoch: %v", err)
		}
		if _, err = abort(t, client, epochName(decided.GetGeneration(), decided.GetFinal()+100_000), "nobody is there"); err == nil {
			t.Error("aborted what nobody has begun")
		}
		if _, err = abort(t, client, epochName(decided.GetGeneration()+7, 1), "nobody is there"); err == nil {
			t.Error("aborted a generation that was never opened")
		}
		exactlyOnce(t, stores[0], "one", 20)
	})
}

// Promise 5, row S5. A decided branch meets an error that no repetition mends. It is tried on, its scope stands still once it
// has no room left and is not halted, since a mended process finishes it; and whoever asks is told what is the matter.
func TestS5_ABranchThatOnlyAPersonCanHelpSaysSo(t *testing.T) {
	for class, hopeless := range map[error]bool{participant.ErrBug: true, participant.ErrMisconfigured: true, participant.ErrUnknownHandle: true, participant.ErrRetry: false} {
		t.Run(class.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, client, stores, workers := doubted(t)
				s := &spoilt{err: fmt.Errorf("the table is gone: %w", class)}
				workers[1].memory.SetHook(s.hook)
				reason := func() string {
					for _, x := range doubts(t, client) {
						for _, b := range x.GetBranches() {
							if b.GetMember() == "two" && strings.Contains(b.GetNext(), "the table is gone") {
								return b.GetNext()
							}
						}
					}
					return ""
				}
				within(t, 10*time.Second, "the reason is shown", func() bool { return reason() != "" })
				if got := strings.Contains(reason(), "a person must act"); got != hopeless {
					t.Errorf("a person is called: %t, want %t: %s", got, hopeless, reason())
				}
				if got := workers[1].member.Status().WaitingFor; strings.Contains(got, "a person must act") != hopeless {
					t.Errorf("the member itself says %q", got)
				}
				if why := haltedWhy(t, client); why != "" {
					t.Errorf("halted: %s", why)
				}
				s.mend()
				visible := len(stores[0].Records())
				within(t, time.Minute, "it goes on", func() bool { return len(stores[0].Records()) > visible+20 })
				for i, name := range []string{"one", "two"} {
					exactlyOnce(t, stores[i], name, 20)
				}
			})
		})
	}
}
