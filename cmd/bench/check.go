package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/processor/stream"
)

// check reads what a job has made visible of records 0 to n-1 and compares it with what it must be. First is the
// event time of record 0.
func check(ctx context.Context, admin *kafka.Admin, job, topic string, n int, first int64) error {
	var take func(r *stream.Record) error
	var whole func() error
	if job == worker.Pass {
		seen := newOnce(n)
		take = func(r *stream.Record) error {
			id, err := idOf(r.Value)
			if err != nil {
				return err
			}
			return seen.take(id)
		}
		whole = seen.whole
	} else {
		sums := newSums(n, first)
		take, whole = sums.take, sums.whole
	}
	if err := admin.ReadAll(ctx, topic, true, nil, nil, take); err != nil {
		return fmt.Errorf("check topic %q: %w", topic, err)
	}
	if err := whole(); err != nil {
		return fmt.Errorf("check topic %q: %w", topic, err)
	}
	return nil
}

// once sees that each number comes exactly once.
type once struct {
	seen  []bool
	count int
}

func newOnce(n int) *once { return &once{seen: make([]bool, n)} }

func (o *once) take(id int) error {
	if id >= len(o.seen) {
		return fmt.Errorf("record %d came out, and %d went in", id, len(o.seen))
	}
	if o.seen[id] {
		return fmt.Errorf("record %d is there twice", id)
	}
	o.seen[id] = true
	o.count++
	return nil
}

func (o *once) whole() error {
	if o.count != len(o.seen) {
		return fmt.Errorf("%d records went in, and %d came out", len(o.seen), o.count)
	}
	return nil
}

// sums are the windows as the input says.
type sums struct {
	read  *worker.ResultReader
	first int64
	want  []total // by window, then key
	left  int     // not seen yet
}

type total struct {
	sum, count int64
	seen       bool
}

func newSums(n int, first int64) *sums {
	s := &sums{read: worker.NewResultReader(), first: first, want: make([]total, (n+perSecond-1)/perSecond*keys)}
	for i := range n {
		t := &s.want[i/perSecond*keys+keyOf(i)]
		if t.count == 0 {
			s.left++
		}
		t.sum += amountOf(i)
		t.count++
	}
	return s
}

// take compares one result.
func (s *sums) take(r *stream.Record) error {
	got, err := s.read.Read(r.Value)
	if err != nil {
		return err
	}
	key, err := strconv.Atoi(string(bytes.TrimPrefix(got.Key, []byte("k-"))))
	if err != nil || key >= keys {
		return fmt.Errorf("%q is the result of no key", r.Value)
	}
	at := int(got.Start-s.first)/int(worker.WindowSize.Milliseconds())*keys + key
	if at < 0 || at >= len(s.want) || s.want[at].count == 0 {
		return fmt.Errorf("%q is the result of no record", r.Value)
	}
	t := &s.want[at]
	if t.seen || t.sum != got.Sum || t.count != got.Count {
		return fmt.Errorf("%q came out (seen before: %t), and the records say sum %d, count %d", r.Value, t.seen, t.sum, t.count)
	}
	t.seen = true
	s.left--
	return nil
}

func (s *sums) whole() error {
	if s.left != 0 {
		return fmt.Errorf("%d results did not come out", s.left)
	}
	return nil
}
