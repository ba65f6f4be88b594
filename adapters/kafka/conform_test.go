package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor/stream"
)

func TestConformance(t *testing.T) {
	for name, opts := range map[string][]kfake.Opt{
		"transaction version 2": nil,
		"transaction version 1": {kfake.MaxVersions(kversion.V3_8_0())},
		"three brokers":         {kfake.NumBrokers(3)},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && opts != nil {
				t.Skip("the short run takes one kind of broker")
			}
			participanttest.Run(t, participanttest.Kit{New: func(t testing.TB) participanttest.Target {
				r := newRig(t, opts...)
				return participanttest.Target{
					Process: func(t testing.TB) participant.Resource {
						s, err := NewSink(SinkConfig{Brokers: []string{r.b.Addr()}, Topic: "totals"})
						if err != nil {
							t.Fatal(err)
						}
						return s
					},
					Write: func(t testing.TB, b participant.Branch, record string) {
						t.Helper()
						if err := b.(*Branch).Write(t.Context(), []stream.Record{{Value: []byte(record)}}); err != nil {
							t.Fatal(err)
						}
					},
					Read: func(testing.TB) []string { return r.visible() },
					NeverPrepared: func(name participant.BranchName) participant.Handle {
						id, err := r.a.ClusterID(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						group := groupOf(name)
						b := &body{
							Cluster: id, PID: 4711, Epoch: 3, Branch: name.String(),
							Witness: &witness{Group: group, Topic: ownWitnessTopic, Partition: 1},
							Topics:  []span{{Topic: "totals", Parts: [][]int64{{0, 0, 0, 1}}}},
						}
						name.N = 2 // the slot
						b.TxnID = name.String()
						b.Class = classOf(t, r)
						h, err := b.encode(name.Resource)
						if err != nil {
							t.Fatal(err)
						}
						return h
					},
				}
			}})
		})
	}
}

// classOf is the EndTxn class that the rig's broker has.
func classOf(t testing.TB, r *rig) int {
	t.Helper()
	c, err := r.sink().probed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.class
}
