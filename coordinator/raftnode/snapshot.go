package raftnode

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/mutant"
)

// A snapshot is a SnapshotHeader, SnapshotRecords and a trailer among them, each behind its
// length as a varint. The trailer counts the records, sums the bytes before it and names the
// hash of the state, so that nothing damaged or half known is ever taken for the ledger.

const (
	snapshotFormat = 1
	recordLimit    = 1 << 30 // bytes; beyond it a length is damage
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is unisink.storage.v1.SnapshotHeader.
type header struct {
	format uint32
	state  *ledger.State
}

func (h *header) visit(w *wire) {
	w.u32(1, &h.format)
	text(w, 2, &h.state.Namespace)
	w.u64(3, &h.state.Incarnation)
	w.u32(4, &h.state.FeatureLevel)
	num(w, 5, &h.state.LastGeneration)
	w.i64(6, &h.state.Floor)
	w.i64(7, &h.state.Forgotten)
}

// trailer is unisink.storage.v1.SnapshotTrailer.
type trailer struct {
	records   uint64
	crc32c    uint32
	stateHash []byte
}

func (t *trailer) visit(w *wire) {
	w.u64(1, &t.records)
	w.u32(2, &t.crc32c)
	w.bytes(3, &t.stateHash)
}

// Numbers of unisink.storage.v1.SnapshotRecord.
const (
	recordNode = 1 + iota
	recordPipeline
	recordScope
	recordTxn
	recordTrailer
	recordAct
)

// snapshot is a state on its way to disk. It shares the machine's slices, which never change.
type snapshot struct{ state func() ledger.State }

// Persist implements raft.FSMSnapshot; the snapshot counts once sink.Close has returned.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := writeSnapshot(sink, s.state()); err != nil {
		return errors.Join(fmt.Errorf("write snapshot %s: %w", sink.ID(), err), sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s snapshot) Release() {}

// writeSnapshot writes st with its checks.
func writeSnapshot(w io.Writer, st ledger.State) error {
	machine, err := ledger.Load(st) // checks every invariant once more, before it is kept
	if err != nil {
		return err
	}
	stateHash := machine.Hash()
	out := &snapshotWriter{w: bufio.NewWriterSize(w, 64<<10), sum: crc32.New(castagnoli)}
	out.message(func(w *wire) { (&header{format: snapshotFormat, state: &st}).visit(w) })
	writeRecords(out, recordNode, st.Nodes, node)
	writeRecords(out, recordPipeline, st.Pipelines, pipeline)
	writeRecords(out, recordScope, st.Scopes, scope)
	writeRecords(out, recordTxn, st.Txns, txn)
	writeRecords(out, recordAct, st.Acts, act)
	end := trailer{records: out.records, crc32c: out.sum.Sum32(), stateHash: stateHash[:]}
	out.message(func(w *wire) { one(w, recordTrailer, &end, func(w *wire, t *trailer) { t.visit(w) }) })
	if out.err != nil {
		return out.err
	}
	return out.w.Flush()
}

// snapshotWriter writes messages and sums what it has written.
type snapshotWriter struct {
	w       *bufio.Writer
	sum     hash.Hash32
	records uint64
	buf     []byte
	err     error
}

func writeRecords[T any](out *snapshotWriter, number int, values []T, visit func(*wire, *T)) {
	for i := range values {
		out.message(func(w *wire) { one(w, number, &values[i], visit) })
		out.records++
	}
}

// message writes one message behind its length; nothing after the first error.
func (out *snapshotWriter) message(visit func(*wire)) {
	if out.err != nil {
		return
	}
	w := wire{writing: true, out: out.buf[:0]}
	visit(&w)
	out.buf = w.out
	switch {
	case w.err != nil:
		out.err = w.err
		return
	case len(w.out) > recordLimit:
		out.err = fmt.Errorf("a record of %d bytes is larger than %d", len(w.out), recordLimit)
		return
	}
	both := io.MultiWriter(out.w, out.sum)
	_, err1 := both.Write(appendUvarint(nil, uint64(len(w.out))))
	_, err2 := both.Write(w.out)
	out.err = errors.Join(err1, err2)
}

// readSnapshot reads, checks and loads one whole snapshot.
func readSnapshot(r io.Reader) (*ledger.Machine, error) {
	in := &snapshotReader{r: bufio.NewReaderSize(r, 64<<10), sum: crc32.New(castagnoli)}
	st, err := in.header()
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	var end *trailer
	records := uint64(0)
	before := uint32(0)
	for ; end == nil; records++ {
		before = in.sum.Sum32()
		if end, err = in.record(&st); err != nil {
			return nil, fmt.Errorf("record %d: %w", records, err)
		}
	}
	records-- // the trailer does not count itself
	if (end.records != records || end.crc32c != before) && !mutant.On("raft/snapshot-checksum") {
		return nil, fmt.Errorf("%w: %d records with checksum %08x, and the trailer says %d with %08x",
			errDamaged, records, before, end.records, end.crc32c)
	}
	if _, err := in.r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows the trailer", errDamaged)
	}
	machine, err := ledger.Load(st)
	if err != nil {
		return nil, err
	}
	if got := machine.Hash(); !bytes.Equal(got[:], end.stateHash) && !mutant.On("raft/snapshot-checksum") {
		return nil, fmt.Errorf("the state has hash %x, and the trailer says %x: this version reads it differently", got, end.stateHash)
	}
	return machine, nil
}

// snapshotReader reads messages and sums what it has read.
type snapshotReader struct {
	r   *bufio.Reader
	sum hash.Hash32
	buf bytes.Buffer // of the newest message
}

func (in *snapshotReader) header() (ledger.State, error) {
	var st ledger.State
	b, err := in.next()
	if err != nil {
		return st, err
	}
	h := header{state: &st}
	if err := decode(b, &h, func(w *wire, h *header) { h.visit(w) }); err != nil {
		return st, err
	}
	if h.format != snapshotFormat {
		return st, fmt.Errorf("%w: format %d is not known to this version, which writes %d", errUnknownField, h.format, snapshotFormat)
	}
	return st, nil
}

// record adds one record to st, or returns the trailer.
func (in *snapshotReader) record(st *ledger.State) (*trailer, error) {
	b, err := in.next()
	if err != nil {
		return nil, err
	}
	var end *trailer
	err = decode(b, st, func(w *wire, st *ledger.State) {
		tag, _ := uvarint(w.in)
		switch number := int(tag >> 3); number {
		case recordNode:
			addRecord(w, number, &st.Nodes, node)
		case recordPipeline:
			addRecord(w, number, &st.Pipelines, pipeline)
		case recordScope:
			addRecord(w, number, &st.Scopes, scope)
		case recordTxn:
			addRecord(w, number, &st.Txns, txn)
		case recordAct:
			addRecord(w, number, &st.Acts, act)
		case recordTrailer:
			end = &trailer{}
			one(w, number, end, func(w *wire, t *trailer) { t.visit(w) })
		default: // decode complains about it, and an empty record is
			if w.in == "" {
				w.fail(errDamaged, "empty record")
			}
		}
	})
	return end, err
}

func addRecord[T any](w *wire, number int, to *[]T, visit func(*wire, *T)) {
	var v T
	one(w, number, &v, visit)
	*to = append(*to, v)
}

// next reads one message, which lasts until the next. A damaged length costs no more memory than there are bytes.
func (in *snapshotReader) next() ([]byte, error) {
	length, err := binary.ReadUvarint(in.r)
	if err != nil {
		return nil, noEOF(err)
	}
	if length > recordLimit {
		return nil, fmt.Errorf("%w: a length of %d bytes", errDamaged, length)
	}
	in.buf.Reset()
	if _, err := io.CopyN(&in.buf, in.r, int64(length)); err != nil {
		return nil, noEOF(err)
	}
	in.sum.Write(appendUvarint(nil, length))
	in.sum.Write(in.buf.Bytes())
	return in.buf.Bytes(), nil
}

// noEOF: within a snapshot the end of the bytes is always too early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
