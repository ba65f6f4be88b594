package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// inKit is a topic as the conformance kit sees it; namespaces get a suffix, for checks that share a cluster.
func inKit(addrs []string, topic, suffix string) participanttest.Target {
	make := func(t testing.TB, options ...kgo.Opt) participant.Resource {
		s, err := NewSink(SinkConfig{Brokers: addrs, Topic: topic, Options: options})
		if err != nil {
			t.Fatal(err)
		}
		return elsewhere{s, suffix}
	}
	return participanttest.Target{
		World:   strings.Join([]string{strings.Join(addrs, ","), topic, suffix}, " "),
		Process: func(t testing.TB) participant.Resource { return make(t) },
		Stepped: func(t testing.TB, at func(step string) error) participant.Resource {
			again := func(int) time.Duration { return 10 * time.Millisecond } // a lost connection is made anew at once
			return make(t, kgo.Dialer(participanttest.StepDialer(nil, at)), kgo.RetryBackoffFn(again))
		},
		Write: func(t testing.TB, b participant.Branch, record string) {
			t.Helper()
			if err := b.(*Branch).Write(t.Context(), []stream.Record{{Value: []byte(record)}}); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// inChild is the target of a process that the kit kills, at the points that the code names too.
func inChild(_ testing.TB, world string) participanttest.Target {
	f := strings.SplitN(world, " ", 3)
	g := inKit(strings.Split(f[0], ","), f[1], f[2])
	if fault.Enabled {
		g.Points = func(at func(point string)) {
			fault.Set(func(name string) error { at(name); return nil })
		}
	}
	return g
}

// watched adds what looks at a target from outside.
func (r *rig) watched(g participanttest.Target) participanttest.Target {
	g.Read = func(testing.TB) []string { return r.visible() }
	g.Drop = func(t testing.TB, h participant.Handle) { r.forget(r.sink(), h) }
	g.Recreate = func(testing.TB) {
		if err := errors.Join(r.a.DeleteTopic(r.Context(), r.topic), r.a.CreateTopic(r.Context(), r.topic, 3, nil)); err != nil {
			r.Fatal(err)
		}
	}
	return g
}

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
			branches := 0 // as many as the kit takes
			if testing.Short() {
				branches = 200 // each is a dozen requests to a broker in this process, which the race detector looks at too
			}
			cert := participanttest.Run(t, participanttest.Kit{Kills: 12, Steps: 6, Branches: branches, New: func(t testing.TB) participanttest.Target {
				r := newRig(t, opts...)
				r.refuseStaleEpochs()
				g := r.watched(inKit(r.addrs, r.topic, ""))
				g.NeverPrepared = r.neverPrepared
				if name != "transaction version 2" || testing.Short() {
					g.Stepped, g.World = nil, "" // connections that break, and processes: one kind of broker is enough
				}
				return g
			}})
			if name != "transaction version 2" || testing.Short() {
				return
			}
			cert.Require(t, "a handle holds no secret") // it has none
		})
	}
}

func TestConformance_SinkAndSource(t *testing.T) {
	t.Run("sink", func(t *testing.T) {
		cert := processortest.RunSink(t, processortest.SinkKit{New: func(t testing.TB) processortest.SinkTarget {
			r := newRig(t)
			r.refuseStaleEpochs()
			return processortest.SinkTarget{
				Process: func(testing.TB) participant.Resource { return r.sink() },
				Read:    func(testing.TB) []string { return r.visible() },
				Bad:     &stream.Record{Value: make([]byte, 4<<20)},
			}
		}})
		cert.Require(t)
	})
	for name, bounded := range map[string]bool{"source": false, "bounded source": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			produce := func(t testing.TB, from, n int) {
				t.Helper()
				records := make([]stream.Record, n)
				for i := range records {
					records[i] = stream.Record{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "record %d", from+i)}
				}
				if err := r.a.Produce(t.Context(), r.topic, records); err != nil {
					t.Fatal(err)
				}
			}
			k := processortest.SourceKit{
				New: func(t testing.TB) processortest.Reader {
					s, err := NewSource(SourceConfig{
						Name: "in", Brokers: r.addrs, Topics: []string{r.topic}, Bounded: bounded, MaxPollRecords: 20, PollWait: 10 * time.Millisecond,
					})
					if err != nil {
						t.Fatal(err)
					}
					return s
				},
				Fill: func(t testing.TB, n int) { produce(t, 0, n) },
				More: produce,
				Lose: func(t testing.TB) {
					if err := errors.Join(r.a.DeleteTopic(t.Context(), r.topic), r.a.CreateTopic(t.Context(), r.topic, 3, nil)); err != nil {
						t.Fatal(err)
					}
				},
			}
			except := []string{"an end is told once for each split, and stays"}
			if bounded {
				k.More, except = nil, []string{"an idle source says so, and wakes up"}
			}
			processortest.RunSource(t, k).Require(t, except...)
		})
	}
}

// neverPrepared makes a handle of a transaction that never was.
func (r *rig) neverPrepared(name participant.BranchName) participant.Handle {
	r.Helper()
	id, err := r.a.ClusterID(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	group := groupOf(name)
	b := &body{
		Cluster: id, PID: 4711, Epoch: 3, Branch: name.String(),
		Witness: &witness{Group: group, Topic: ownWitnessTopic, Partition: 1},
		Topics:  []span{{Topic: r.topic, Parts: [][]int64{{0, 0, 0, 1}}}},
	}
	name.N = 2 // the slot
	b.TxnID = name.String()
	b.Class = classOf(r.TB, r)
	h, err := b.encode(name.Resource)
	if err != nil {
		r.Fatal(err)
	}
	return h
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
