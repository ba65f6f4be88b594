package verify_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

// stamped is a source of records without times, the third of which is bad, and sinks that stamp what they write.
func stamped() *verify.Job {
	values := []string{"a", "b", "bad", "a"}
	job := &verify.Job{
		Plan: verify.Plan{OnBad: verify.BadKept, Window: verify.Window{Kind: verify.NoWindow}, Read: func(r *stream.Record) (verify.Seen, error) {
			if string(r.Value) == "bad" {
				return verify.Seen{}, fmt.Errorf("%q is bad", r.Value)
			}
			return verify.Seen{Keep: true, Timed: true}, nil
		}},
		Source: untimedSource(values),
		Cut:    verify.Cut{Positions: []stream.Position{{Offset: int64(len(values))}}, Newest: []stream.Position{{Offset: int64(len(values))}}, Final: true},
	}
	var passed, dead listed
	for i, v := range values {
		o := verify.Output{Value: []byte(v), Time: int64(1000 + i), Place: fmt.Sprint("output ", i)}
		if v != "bad" {
			passed = append(passed, o)
			continue
		}
		o.Headers = []stream.Header{{Key: verify.OriginHeader, Value: fmt.Appendf(nil, "in/0/%d", i)}, {Key: verify.ReasonHeader, Value: []byte("bad")}}
		dead = append(dead, o)
	}
	job.Passed = []verify.Copies{{Name: "topic", Reader: passed, Headers: true, Time: true, Stamps: true}}
	job.Dead = &verify.Copies{Name: "dead", Reader: dead, Headers: true, Time: true, Stamps: true}
	return job
}

type untimedSource []string

func (u untimedSource) Read(_ context.Context, to []stream.Position, f func(stream.Split, *stream.Record) error) error {
	for _, p := range to {
		for i, v := range u[:p.Offset] {
			if err := f(p.Split, &stream.Record{Topic: "in", Offset: int64(i), Value: []byte(v)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// A sink may give a record the time that its source has none of. Nothing else may be another.
func TestARecordWithoutATimeIsKnownByTheRest(t *testing.T) {
	for name, c := range map[string]struct {
		change func(j *verify.Job)
		want   verify.Verdict
	}{
		"nothing is wrong": {func(*verify.Job) {}, verify.Clean},
		"one of two equal ones is lost": {func(j *verify.Job) {
			j.Passed[0].Reader = j.Passed[0].Reader.(listed)[:2]
		}, verify.Broken},
		"one is there once more": {func(j *verify.Job) {
			all := j.Passed[0].Reader.(listed)
			j.Passed[0].Reader = append(slices.Clone(all), all[1])
		}, verify.Broken},
		"one is another": {func(j *verify.Job) {
			j.Passed[0].Reader.(listed)[1].Value = []byte("c")
		}, verify.Broken},
		"a dead letter is another": {func(j *verify.Job) {
			j.Dead.Reader.(listed)[0].Value = []byte("worse")
		}, verify.Broken},
		"a sink that stamps nothing holds another time": {func(j *verify.Job) {
			j.Passed[0].Stamps = false
		}, verify.Broken},
		"a sink for dead letters that stamps nothing holds another time": {func(j *verify.Job) {
			j.Dead.Stamps = false
		}, verify.Broken},
	} {
		t.Run(name, func(t *testing.T) {
			j := stamped()
			c.change(j)
			r, err := j.Run(t.Context())
			if err != nil || r.Verdict != c.want {
				t.Errorf("%+v, %v; want %s", r, err, c.want)
			}
		})
	}
}
