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
	"google.golang.org/protobuf/proto"

	"github.com/unisink/unisink/coordinator/ledger"
	storagev1 "github.com/unisink/unisink/proto/unisink/storage/v1"
)

// A snapshot is a SnapshotHeader, SnapshotRecords and a trailer among them, each behind its
// length as a varint. The trailer counts the records, sums the bytes before it and names the
// hash of the state, so that nothing damaged or half known is ever taken for the ledger.

const (
	snapshotFormat = 1
	recordLimit    = 1 << 30 // bytes; beyond it a length is damage
)

var (
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	headerSchema = schemaOf((&storagev1.SnapshotHeader{}).ProtoReflect().Descriptor())
	recordSchema = schemaOf((&storagev1.SnapshotRecord{}).ProtoReflect().Descriptor())
)

// snapshot is a state on its way to disk. It shares the machine's slices, which never change.
type snapshot struct{ state ledger.State }

// Persist implements raft.FSMSnapshot; the snapshot counts once sink.Close has returned.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := writeSnapshot(sink, s.state); err != nil {
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
	sum := crc32.New(castagnoli)
	out := bufio.NewWriterSize(w, 64<<10)
	both := io.MultiWriter(out, sum)
	if err := writeMessage(both, toHeader(st)); err != nil {
		return err
	}
	records := uint64(0)
	err = eachRecord(st, func(r *storagev1.SnapshotRecord) error {
		records++
		return writeMessage(both, r)
	})
	if err != nil {
		return err
	}
	trailer := &storagev1.SnapshotTrailer{Records: records, Crc32C: sum.Sum32(), StateHash: stateHash[:]}
	if err := writeMessage(out, &storagev1.SnapshotRecord{Record: &storagev1.SnapshotRecord_Trailer{Trailer: trailer}}); err != nil {
		return err
	}
	return out.Flush()
}

func writeMessage(w io.Writer, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > recordLimit {
		return fmt.Errorf("a record of %d bytes is larger than %d", len(b), recordLimit)
	}
	if _, err := w.Write(binary.AppendUvarint(nil, uint64(len(b)))); err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func toHeader(st ledger.State) *storagev1.SnapshotHeader {
	return &storagev1.SnapshotHeader{
		Format: snapshotFormat, Namespace: st.Namespace, Incarnation: st.Incarnation,
		FeatureLevel: st.FeatureLevel, LastGeneration: uint64(st.LastGeneration), Floor: st.Floor,
	}
}

// eachRecord calls f with everything that does not stand in the header, in the state's order.
func eachRecord(st ledger.State, f func(*storagev1.SnapshotRecord) error) error {
	for _, n := range st.Nodes {
		if err := f(&storagev1.SnapshotRecord{Record: &storagev1.SnapshotRecord_Node{Node: toNode(n)}}); err != nil {
			return err
		}
	}
	for _, p := range st.Pipelines {
		if err := f(&storagev1.SnapshotRecord{Record: &storagev1.SnapshotRecord_Pipeline{Pipeline: toPipeline(p)}}); err != nil {
			return err
		}
	}
	for _, s := range st.Scopes {
		if err := f(&storagev1.SnapshotRecord{Record: &storagev1.SnapshotRecord_Scope{Scope: toScope(s)}}); err != nil {
			return err
		}
	}
	for _, t := range st.Txns {
		if err := f(&storagev1.SnapshotRecord{Record: &storagev1.SnapshotRecord_Txn{Txn: toTxn(t)}}); err != nil {
			return err
		}
	}
	return nil
}

// readSnapshot reads, checks and loads one whole snapshot.
func readSnapshot(r io.Reader) (*ledger.Machine, error) {
	in := &snapshotReader{r: bufio.NewReaderSize(r, 64<<10), sum: crc32.New(castagnoli)}
	st, err := in.header()
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	var trailer *storagev1.SnapshotTrailer
	records := uint64(0)
	before := uint32(0)
	for ; trailer == nil; records++ {
		before = in.sum.Sum32()
		if trailer, err = in.record(&st); err != nil {
			return nil, fmt.Errorf("record %d: %w", records, err)
		}
	}
	records-- // the trailer does not count itself
	if trailer.GetRecords() != records || trailer.GetCrc32C() != before {
		return nil, fmt.Errorf("%d records with checksum %08x, and the trailer says %d with %08x: damaged",
			records, before, trailer.GetRecords(), trailer.GetCrc32C())
	}
	if _, err := in.r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the trailer: damaged")
	}
	machine, err := ledger.Load(st)
	if err != nil {
		return nil, err
	}
	if got := machine.Hash(); !bytes.Equal(got[:], trailer.GetStateHash()) {
		return nil, fmt.Errorf("the state has hash %x, and the trailer says %x: this version reads it differently", got, trailer.GetStateHash())
	}
	return machine, nil
}

// snapshotReader reads messages and sums what it has read.
type snapshotReader struct {
	r   *bufio.Reader
	sum hash.Hash32
}

func (in *snapshotReader) header() (ledger.State, error) {
	b, err := in.next()
	if err != nil {
		return ledger.State{}, err
	}
	if err := headerSchema.check(b); err != nil {
		return ledger.State{}, err
	}
	var h storagev1.SnapshotHeader
	if err := proto.Unmarshal(b, &h); err != nil {
		return ledger.State{}, err
	}
	if h.GetFormat() != snapshotFormat {
		return ledger.State{}, fmt.Errorf("format %d is not known to this version, which writes %d", h.GetFormat(), snapshotFormat)
	}
	return ledger.State{
		Namespace: h.GetNamespace(), Incarnation: h.GetIncarnation(), FeatureLevel: h.GetFeatureLevel(),
		LastGeneration: ledger.Generation(h.GetLastGeneration()), Floor: h.GetFloor(),
	}, nil
}

// record adds one record to st, or returns the trailer.
func (in *snapshotReader) record(st *ledger.State) (*storagev1.SnapshotTrailer, error) {
	b, err := in.next()
	if err != nil {
		return nil, err
	}
	if err := recordSchema.check(b); err != nil {
		return nil, err
	}
	var p storagev1.SnapshotRecord
	if err := proto.Unmarshal(b, &p); err != nil {
		return nil, err
	}
	switch r := p.GetRecord().(type) {
	case *storagev1.SnapshotRecord_Node:
		st.Nodes = append(st.Nodes, fromNode(r.Node))
	case *storagev1.SnapshotRecord_Pipeline:
		st.Pipelines = append(st.Pipelines, fromPipeline(r.Pipeline))
	case *storagev1.SnapshotRecord_Scope:
		st.Scopes = append(st.Scopes, fromScope(r.Scope))
	case *storagev1.SnapshotRecord_Txn:
		st.Txns = append(st.Txns, fromTxn(r.Txn))
	case *storagev1.SnapshotRecord_Trailer:
		return r.Trailer, nil
	default:
		return nil, errors.New("empty record: damaged")
	}
	return nil, nil
}

// next reads one message. A damaged length costs no more memory than there are bytes.
func (in *snapshotReader) next() ([]byte, error) {
	length, err := binary.ReadUvarint(in.r)
	if err != nil {
		return nil, noEOF(err)
	}
	if length > recordLimit {
		return nil, fmt.Errorf("a length of %d bytes: damaged", length)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, in.r, int64(length)); err != nil {
		return nil, noEOF(err)
	}
	var prefix [binary.MaxVarintLen64]byte
	in.sum.Write(binary.AppendUvarint(prefix[:0], length)) //nolint:errcheck // a hash never fails
	in.sum.Write(b.Bytes())                                //nolint:errcheck // a hash never fails
	return b.Bytes(), nil
}

// noEOF: within a snapshot the end of the bytes is always too early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
