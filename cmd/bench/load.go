package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/processor/stream"
)

// The input: records of 100 bytes, 1,000 keys, 10,000 records per second of event time.
const (
	keys        = 1_000
	perSecond   = 10_000
	recordBytes = 100

	idAt     = len(`{"id":"`)
	idDigits = 8
	// maxRecords have ids of eight digits.
	maxRecords = 100_000_000
	smallest   = 1_000 // amounts have four digits
)

var filler = strings.Repeat("n", recordBytes)

// keyOf and amountOf are what record n says; neighbours have different keys.
func keyOf(n int) int { return n * 7919 % keys }

func amountOf(n int) int64 { return smallest + int64(n%9_000) }

// appendRecord appends record n, 100 bytes of JSON.
func appendRecord(dst []byte, n int, at int64) []byte {
	from := len(dst)
	dst = append(dst, `{"id":"`...)
	dst = appendDigits(dst, n, idDigits)
	dst = append(dst, `","key":"k-`...)
	dst = appendDigits(dst, keyOf(n), 4)
	dst = append(dst, `","amount":`...)
	dst = strconv.AppendInt(dst, amountOf(n), 10)
	dst = append(dst, `,"at":`...)
	dst = strconv.AppendInt(dst, at, 10)
	dst = append(dst, `,"note":"`...)
	dst = append(dst, filler[:recordBytes-2-(len(dst)-from)]...)
	return append(dst, `"}`...)
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

// idOf reads a record's number back.
func idOf(value []byte) (int, error) {
	if len(value) != recordBytes {
		return 0, fmt.Errorf("a record of %d bytes came out, and all that went in had %d", len(value), recordBytes)
	}
	n, err := strconv.Atoi(string(value[idAt : idAt+idDigits]))
	if err != nil {
		return 0, fmt.Errorf("a record without a number came out: %w", err)
	}
	return n, nil
}

// batch makes records first, first+1, … in buffers that are used again.
type batch struct {
	records []stream.Record
	bytes   []byte
}

func (b *batch) fill(first, n int, at func(n int) int64) []stream.Record {
	b.records, b.bytes = b.records[:0], b.bytes[:0]
	if cap(b.bytes) < n*recordBytes {
		b.bytes = make([]byte, 0, n*recordBytes)
	}
	for i := first; i < first+n; i++ {
		from := len(b.bytes)
		b.bytes = appendRecord(b.bytes, i, at(i))
		b.records = append(b.records, stream.Record{Value: b.bytes[from:len(b.bytes):len(b.bytes)], Time: at(i)})
	}
	return b.records
}

// eventTimes are those of n records, of which the last is not in the future. They are young, since topics
// keep records by their timestamps.
func eventTimes(n int, now time.Time) func(int) int64 {
	first := now.Truncate(time.Second).UnixMilli() - int64(n/perSecond+1)*1000
	return func(i int) int64 { return first + int64(i)*1000/perSecond }
}

// load is what fills topics.
func load(brokers []string, topic string, compression string, linger time.Duration) (*kafka.PlainWriter, error) {
	return kafka.NewPlainWriter(kafka.SinkConfig{
		Brokers: brokers, Topic: topic, Partitioning: kafka.RoundRobin, Compression: kafka.Compression(compression),
	}, linger)
}

// fill writes records 0 to n-1 to a topic.
func fill(ctx context.Context, w *kafka.PlainWriter, n int, eventTime func(int) int64) error {
	var b batch
	for first := 0; first < n; first += 500 {
		if err := w.Write(ctx, b.fill(first, min(500, n-first), eventTime)); err != nil {
			return err
		}
	}
	return w.Flush(ctx)
}

// drip writes records at a steady rate until ctx ends, and returns how many. Made is told each record's
// time before it is written.
func drip(ctx context.Context, w *kafka.PlainWriter, rate int, made func(n int, at time.Time)) (int, error) {
	const every = time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	var b batch
	began := time.Now()
	written := 0
	// What was begun is seen through: how much of it the broker has is never unknown.
	work := context.WithoutCancel(ctx)
	for {
		select {
		case <-ctx.Done():
			return written, w.Flush(work)
		case <-tick.C:
		}
		now := time.Now()
		due := min(int(now.Sub(began).Seconds()*float64(rate)), maxRecords) - written
		if due <= 0 {
			continue
		}
		for n := written; n < written+due; n++ {
			made(n, now)
		}
		if err := w.Write(work, b.fill(written, due, func(int) int64 { return now.UnixMilli() })); err != nil {
			return written, err
		}
		written += due
	}
}
