package orders

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/processor/stream"
)

const (
	// jitter is how much earlier than its place in the stream an order may say it was made, and Disorder what
	// the pipeline allows for: more, since the orders of a batch go to one partition.
	jitter   = 200 * time.Millisecond
	Disorder = 500 * time.Millisecond
	// longWindow is one that does not end while anything is measured: it began in 1970.
	longWindow = 100 * 365 * 24 * time.Hour

	idDigits   = 8
	keyDigits  = 8
	keyPrefix  = "k-"
	smallest   = 1_000 // amounts have four digits
	batchSize  = 500
	orderBytes = 110
)

// Most is how many orders there can be: their ids have eight digits.
const Most = 100_000_000

// Orders are all that is known of the input: order n follows from n.
type Orders struct {
	// Keys is how many there are; Window how long windows are.
	Keys   int
	Window time.Duration
	// Of orders with a window of a second: base is the start of the first window but one, and perSecond how many
	// orders there are to a second of event time.
	base      int64
	perSecond int
	// inTurn: every key comes once before one comes again; step goes round them.
	inTurn bool
	step   int
}

// New are n orders in windows of a second, whose keys are drawn by lot. The last is not in the future.
func New(n, keys, perSecond int, now time.Time) Orders {
	first := now.Truncate(time.Second).UnixMilli() - int64(n/perSecond+2)*1000
	return Orders{Keys: keys, Window: worker.WindowSize, base: first, perSecond: perSecond}
}

// NewHeld are orders in one window, each of another key until all had their turn.
func NewHeld(keys int) Orders {
	o := Orders{Keys: keys, Window: longWindow, inTurn: true, step: 7919}
	for gcd(o.step, keys) != 1 {
		o.step++
	}
	return o
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// scramble turns a number into 64 bits that look like chance (the finaliser of MurmurHash3).
func scramble(n int) uint64 {
	h := uint64(n) + 0x9e3779b97f4a7c15
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func (o Orders) key(n int) int {
	if o.inTurn {
		return int(uint64(n) % uint64(o.Keys) * uint64(o.step) % uint64(o.Keys))
	}
	return int(scramble(n) % uint64(o.Keys))
}

func (o Orders) amount(n int) int64 { return smallest + int64(n%9_000) }

// at is when order n was made; one in the long window is made now.
func (o Orders) at(n int, now int64) int64 {
	if o.inTurn {
		return now
	}
	back := scramble(^n) % uint64(jitter.Milliseconds())
	return o.base + int64(n)*1000/int64(o.perSecond) - int64(back)
}

// appendOrder appends order n.
func (o Orders) appendOrder(dst []byte, n int, at int64) []byte {
	dst = append(dst, `{"id":"`...)
	dst = appendDigits(dst, n, idDigits)
	dst = append(dst, `","key":"`+keyPrefix...)
	dst = appendDigits(dst, o.key(n), keyDigits)
	dst = append(dst, `","amount":`...)
	dst = strconv.AppendInt(dst, o.amount(n), 10)
	dst = append(dst, `,"at":`...)
	dst = strconv.AppendInt(dst, at, 10)
	return append(dst, `,"note":"two items, no hurry"}`...)
}

// Write writes orders first to first+n-1. What was begun is seen through, also when ctx ends.
func (o Orders) Write(ctx context.Context, w *kafka.PlainWriter, first, n int) error {
	records := make([]stream.Record, 0, batchSize)
	arena := make([]byte, 0, batchSize*orderBytes)
	for end := first + n; first < end; {
		records, arena = records[:0], arena[:0]
		now := time.Now().UnixMilli()
		for ; first < end && len(records) < batchSize; first++ {
			at, from := o.at(first, now), len(arena)
			arena = o.appendOrder(arena, first, at)
			records = append(records, stream.Record{Value: arena[from:len(arena):len(arena)], Time: at})
		}
		if err := w.Write(ctx, records); err != nil {
			return err
		}
	}
	return nil
}

// Outcome is what a run made visible, in any order.
type Outcome struct {
	Results int
	Digest  uint64 // sum of the hashes of all results
}

func (o Outcome) String() string { return fmt.Sprintf("%016x", o.Digest) }

// tally is what the first n orders make of one key in one window.
type tally struct {
	sum   int64
	count int32
	seen  bool
}

// tallies recompute the results from the orders.
type tallies struct {
	o    Orders
	n    int
	want []tally // by window, then key
	left int     // not seen yet
	read *worker.ResultReader
	got  Outcome
}

func newTallies(o Orders, n int) *tallies {
	windows := 1
	if !o.inTurn {
		windows = (n-1)/o.perSecond + 2 // jitter reaches into the window before the first
	}
	t := &tallies{o: o, n: n, want: make([]tally, windows*o.Keys), read: worker.NewResultReader()}
	for i := range n {
		w := &t.want[t.window(o.at(i, 0))*o.Keys+o.key(i)]
		if w.count == 0 {
			t.left++
		}
		w.sum += o.amount(i)
		w.count++
	}
	return t
}

// window is the index of the window of an event time.
func (t *tallies) window(at int64) int {
	if t.o.inTurn {
		return 0
	}
	size := t.o.Window.Milliseconds()
	return int((at - t.o.base + size) / size)
}

// take compares one result.
func (t *tallies) take(r *stream.Record) error {
	got, err := t.read.Read(r.Value)
	if err != nil {
		return err
	}
	key, err := strconv.Atoi(string(bytes.TrimPrefix(got.Key, []byte(keyPrefix))))
	at := t.window(got.Start)*t.o.Keys + key
	if err != nil || key < 0 || key >= t.o.Keys || at < 0 || at >= len(t.want) || t.want[at].count == 0 {
		return fmt.Errorf("%q is the result of no order", r.Value)
	}
	w := &t.want[at]
	if w.seen || w.sum != got.Sum || int64(w.count) != got.Count {
		return fmt.Errorf("%q came out (seen before: %t), and the orders say sum %d, count %d", r.Value, w.seen, w.sum, w.count)
	}
	w.seen = true
	t.left--
	h := fnv.New64a()
	var b [32]byte
	for i, v := range []int64{int64(key), got.Start, got.Sum, got.Count} {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(v))
	}
	_, _ = h.Write(b[:]) // never fails
	t.got.Results++
	t.got.Digest += h.Sum64()
	return nil
}

func (t *tallies) whole() error {
	if t.left != 0 {
		return fmt.Errorf("%d results did not come out", t.left)
	}
	return nil
}

// Check reads what is visible and compares it, result by result, with what the first n orders make.
func Check(ctx context.Context, admin *kafka.Admin, topic string, o Orders, n int) (Outcome, error) {
	t := newTallies(o, n)
	err := admin.ReadAll(ctx, topic, true, nil, nil, t.take)
	if err == nil {
		err = t.whole()
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("check topic %q: %w", topic, err)
	}
	return t.got, nil
}

// Drip writes orders from first on at a steady rate until ctx ends, and returns how many there are then.
func (o Orders) Drip(ctx context.Context, w *kafka.PlainWriter, first, rate int) (int, error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	work := context.WithoutCancel(ctx)
	began, written := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return first + written, w.Flush(work)
		case <-tick.C:
		}
		due := min(int(time.Since(began).Seconds()*float64(rate)), Most-first) - written
		if due <= 0 {
			continue
		}
		if err := o.Write(work, w, first+written, due); err != nil {
			return first + written, err
		}
		written += due
	}
}

func appendDigits(dst []byte, n, digits int) []byte {
	for range digits {
		dst = append(dst, '0')
	}
	for i := len(dst) - 1; n > 0; i, n = i-1, n/10 {
		dst[i] += byte(n % 10)
	}
	return dst
}
