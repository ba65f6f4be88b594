package raftnode

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/unisink/unisink/coordinator/ledger"
	storagev1 "github.com/unisink/unisink/proto/unisink/storage/v1"
)

var update = flag.Bool("update", false, "add missing golden files; existing ones are never changed")

// bodies has every command of the ledger.
func bodies() []ledger.Body {
	return []ledger.Body{
		ledger.Init{},
		ledger.PutNode{},
		ledger.PutPipeline{},
		ledger.DeletePipeline{},
		ledger.SetDesired{},
		ledger.OpenGeneration{},
		ledger.CloseGeneration{},
		ledger.Decide{},
		ledger.Announce{},
		ledger.Commit{},
		ledger.PresumeAbort{},
		ledger.Resolve{},
		ledger.Swept{},
		ledger.Rewind{},
		ledger.Resume{},
		ledger.Force{},
		ledger.Retire{},
		ledger.Reshard{},
		ledger.RaiseFeatureLevel{},
		ledger.Pin{},
		ledger.Note{},
	}
}

// fill sets every field of v, at any depth, to a value that is not zero and not the others'.
func fill(v reflect.Value, next *int) {
	*next++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(fmt.Appendf(nil, "bytes-%d", *next))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), next)
		fill(v.Index(1), next)
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8: // an enumeration
		v.SetUint(uint64(1 + *next%2))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*next))
	case reflect.Int32, reflect.Int64:
		v.SetInt(-int64(*next))
	default:
		panic("no idea how to fill a " + v.Kind().String())
	}
}

func filled(body ledger.Body) ledger.Command {
	next := 0
	v := reflect.New(reflect.TypeOf(body)).Elem()
	fill(v, &next)
	return ledger.Command{Request: "request", Actor: "actor", At: 1_700_000_000_123, Body: v.Interface().(ledger.Body)}
}

func entryOf(t testing.TB, commands ...ledger.Command) []byte {
	t.Helper()
	var entry []byte
	for _, c := range commands {
		b, err := encodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		entry = appendCommand(entry, b, c.At)
	}
	return entry
}

func TestEveryFieldOfEveryCommandSurvivesTheLog(t *testing.T) {
	seen := map[protoreflect.Name]bool{}
	for _, body := range bodies() {
		want := filled(body)
		data := entryOf(t, want, want)
		got, err := decodeEntry(data)
		if err != nil {
			t.Errorf("%T: %v", body, err)
			continue
		}
		if diff := cmp.Diff([]ledger.Command{want, want}, got); diff != "" {
			t.Errorf("%T changed on its way (-want +got):\n%s", body, diff)
		}
		var entry storagev1.Entry
		asGenerated(t, data, &entry)
		m := entry.GetCommands()[0].ProtoReflect()
		which := m.WhichOneof(m.Descriptor().Oneofs().ByName("body"))
		seen[which.Name()] = true
		if name := strings.TrimPrefix(fmt.Sprintf("%T", body), "ledger."); plainName(string(which.Name())) != plainName(name) {
			t.Errorf("%s is stored as %s", name, which.Name())
		}
		sameFields(t, m.Get(which).Message(), reflect.ValueOf(want.Body))
	}
	fields := (&storagev1.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range fields.Len() {
		if !seen[fields.Get(i).Name()] {
			t.Errorf("no command of the ledger is stored as %s", fields.Get(i).FullName())
		}
	}
}

// asGenerated reads data with the generated code and checks that this would write it the same.
func asGenerated(t *testing.T, data []byte, into proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(into)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, again) {
		t.Errorf("the generated code writes %s differently:\nours   %x\ntheirs %x", into.ProtoReflect().Descriptor().FullName(), data, again)
	}
}

// sameFields compares the generated message with the ledger's value, field by field of the same
// name, and reports fields that only one of them has.
func sameFields(t *testing.T, m protoreflect.Message, v reflect.Value) {
	t.Helper()
	byName := map[string]protoreflect.FieldDescriptor{}
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		byName[plainName(string(fd.Name()))] = fd
	}
	for i := range v.NumField() {
		name := plainName(v.Type().Field(i).Name)
		fd := byName[name]
		if fd == nil {
			t.Errorf("%s.%s is stored nowhere", v.Type(), v.Type().Field(i).Name)
			continue
		}
		delete(byName, name)
		sameValue(t, fd, m.Get(fd), v.Field(i))
	}
	for _, fd := range byName {
		t.Errorf("%s is filled by nothing", fd.FullName())
	}
}

func plainName(s string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSuffix(s, "_ms"), "_", ""))
}

func sameValue(t *testing.T, fd protoreflect.FieldDescriptor, got protoreflect.Value, want reflect.Value) {
	t.Helper()
	switch {
	case fd.IsList():
		for i := range want.Len() {
			sameFields(t, got.List().Get(i).Message(), want.Index(i))
		}
	case fd.Kind() == protoreflect.MessageKind:
		sameFields(t, got.Message(), want)
	case fd.Kind() == protoreflect.EnumKind:
		if uint64(got.Enum()) != want.Uint() {
			t.Errorf("%s is %d, want %d", fd.FullName(), got.Enum(), want.Uint())
		}
	default:
		if !reflect.DeepEqual(got.Interface(), want.Convert(reflect.TypeOf(got.Interface())).Interface()) {
			t.Errorf("%s is %v, want %v", fd.FullName(), got, want)
		}
	}
}

func TestACommandWithoutBodyIsNotUnderstood(t *testing.T) {
	if _, err := encodeCommand(ledger.Command{Request: "r"}); err == nil {
		t.Error("a command without body was encoded")
	}
	empty, err := proto.Marshal(&storagev1.Command{Request: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeEntry(appendCommand(nil, encoded{bytes: empty, head: len(empty)}, 1)); err == nil {
		t.Error("a command without body was decoded")
	}
}

func TestEveryFieldOfTheStateSurvivesASnapshot(t *testing.T) {
	var want ledger.State
	next := 0
	fill(reflect.ValueOf(&want).Elem(), &next)
	var buf bytes.Buffer
	out := &snapshotWriter{w: bufio.NewWriter(&buf), sum: crc32.New(castagnoli)}
	out.message(func(w *wire) { (&header{format: snapshotFormat, state: &want}).visit(w) })
	writeRecords(out, recordNode, want.Nodes, node)
	writeRecords(out, recordPipeline, want.Pipelines, pipeline)
	writeRecords(out, recordScope, want.Scopes, scope)
	writeRecords(out, recordTxn, want.Txns, txn)
	writeRecords(out, recordAct, want.Acts, act)
	end := trailer{records: 1, crc32c: 2, stateHash: []byte{3}}
	out.message(func(w *wire) { one(w, recordTrailer, &end, func(w *wire, t *trailer) { t.visit(w) }) })
	if err := errors.Join(out.err, out.w.Flush()); err != nil {
		t.Fatal(err)
	}

	raw := &snapshotReader{r: bufio.NewReader(bytes.NewReader(buf.Bytes())), sum: crc32.New(castagnoli)}
	for i := range out.records + 2 {
		b, err := raw.next()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			asGenerated(t, b, &storagev1.SnapshotHeader{})
			continue
		}
		var record storagev1.SnapshotRecord
		asGenerated(t, b, &record)
		m := record.ProtoReflect()
		which := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
		values := map[protoreflect.Name]any{"node": want.Nodes, "pipeline": want.Pipelines, "scope": want.Scopes, "txn": want.Txns, "act": want.Acts}
		if which.Name() != "trailer" {
			sameFields(t, m.Get(which).Message(), reflect.ValueOf(values[which.Name()]).Index(int(i-1)%2))
		}
	}

	in := &snapshotReader{r: bufio.NewReader(&buf), sum: crc32.New(castagnoli)}
	got, err := in.header()
	for i := uint64(0); err == nil && i < out.records; i++ {
		_, err = in.record(&got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the state changed on its way (-want +got):\n%s", diff)
	}
	if got, err := in.record(&got); err != nil || !reflect.DeepEqual(*got, end) {
		t.Errorf("the trailer is read as %v, %v", got, err)
	}
}

func TestEnumerationsHaveTheSameNumbersOnDiskAsInMemory(t *testing.T) {
	for _, e := range []struct {
		disk   protoreflect.Enum
		memory uint8
	}{
		{storagev1.Desired_DESIRED_RUNNING, uint8(ledger.Running)},
		{storagev1.Desired_DESIRED_STOPPING, uint8(ledger.Stopping)},
		{storagev1.Desired_DESIRED_DRAINING, uint8(ledger.Draining)},
		{storagev1.Desired_DESIRED_STOPPED, uint8(ledger.Stopped)},
		{storagev1.Outcome_OUTCOME_PENDING, uint8(ledger.Pending)},
		{storagev1.Outcome_OUTCOME_COMMITTED, uint8(ledger.Committed)},
		{storagev1.Outcome_OUTCOME_ABORTED, uint8(ledger.Aborted)},
		{storagev1.Verdict_VERDICT_COMMITTED, uint8(ledger.ProvenCommitted)},
		{storagev1.Verdict_VERDICT_ROLLED_BACK, uint8(ledger.ProvenRolledBack)},
		{storagev1.ForceAction_FORCE_ACTION_ACCEPT_LOSS, uint8(ledger.AcceptLoss)},
		{storagev1.ForceAction_FORCE_ACTION_WRITE_OFF, uint8(ledger.WriteOff)},
	} {
		if uint8(e.disk.Number()) != e.memory {
			t.Errorf("%v is %d on disk and %d in memory", e.disk, e.disk.Number(), e.memory)
		}
	}
}

// TestP26_AnUnknownFieldAtAnyDepthStopsTheReplica plants a field of the future in every message
// that an entry can hold.
func TestP26_AnUnknownFieldAtAnyDepthStopsTheReplica(t *testing.T) {
	planted := map[protoreflect.FullName]bool{}
	for _, body := range bodies() {
		data := entryOf(t, filled(body))
		var entry storagev1.Entry
		if err := proto.Unmarshal(data, &entry); err != nil {
			t.Fatal(err)
		}
		walk(entry.ProtoReflect(), func(m protoreflect.Message) {
			for _, future := range [][]byte{
				protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1),
				protowire.AppendBytes(protowire.AppendTag(nil, 33, protowire.BytesType), []byte("x")),
				protowire.AppendFixed32(protowire.AppendTag(nil, 1, protowire.Fixed32Type), 1), // known number, other type
			} {
				m.SetUnknown(future)
				b, err := proto.Marshal(&entry)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := decodeEntry(b); !errors.Is(err, errUnknownField) {
					t.Errorf("%s: an unknown field was taken with %v", m.Descriptor().FullName(), err)
				}
			}
			m.SetUnknown(nil)
			planted[m.Descriptor().FullName()] = true
		})
	}
	for _, must := range []protoreflect.FullName{"unisink.storage.v1.Entry", "unisink.storage.v1.Handle", "unisink.storage.v1.StatePart"} {
		if !planted[must] {
			t.Errorf("nothing was planted in %s", must)
		}
	}
}

func TestP26_AnUnknownValueOfAnEnumerationStopsTheReplica(t *testing.T) {
	data, err := proto.Marshal(&storagev1.Entry{Commands: []*storagev1.Command{{Body: &storagev1.Command_SetDesired{
		SetDesired: &storagev1.SetDesired{Pipeline: "p", From: storagev1.Desired_DESIRED_RUNNING, To: 77},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeEntry(data); !errors.Is(err, errUnknownField) {
		t.Errorf("a desired state of the future was taken with %v", err)
	}
}

// walk calls f for m and every message within it.
func walk(m protoreflect.Message, f func(protoreflect.Message)) {
	f(m)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() != protoreflect.MessageKind:
		case fd.IsList():
			for i := range v.List().Len() {
				walk(v.List().Get(i).Message(), f)
			}
		default:
			walk(v.Message(), f)
		}
		return true
	})
}

// TestStoredEntriesGoOnDecoding reads what earlier versions wrote. A sample is never changed:
// -update adds those that are missing.
func TestStoredEntriesGoOnDecoding(t *testing.T) {
	dir := filepath.Join("testdata", "entries-v1")
	for _, body := range bodies() {
		name := strings.TrimPrefix(fmt.Sprintf("%T", body), "ledger.")
		base := filepath.Join(dir, name)
		if _, err := os.Stat(base + ".bin"); os.IsNotExist(err) && *update {
			add(t, base+".bin", entryOf(t, filled(body)))
			add(t, base+".json", plain(t, filled(body)))
		}
		stored, err := os.ReadFile(base + ".bin")
		if err != nil {
			t.Errorf("no sample of %s; add it with -update: %v", name, err)
			continue
		}
		want, err := os.ReadFile(base + ".json")
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := decodeEntry(stored)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %d commands, %v", name, len(got), err)
			continue
		}
		subset(t, name, want, plain(t, got[0]))
	}
}

func add(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func plain(t *testing.T, c ledger.Command) []byte {
	t.Helper()
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// subset checks that everything in want is in got; got may have fields that came later.
func subset(t *testing.T, name string, want, got []byte) {
	t.Helper()
	var w, g any
	if err := errors.Join(json.Unmarshal(want, &w), json.Unmarshal(got, &g)); err != nil {
		t.Fatal(err)
	}
	var compare func(path string, w, g any)
	compare = func(path string, w, g any) {
		switch w := w.(type) {
		case map[string]any:
			g, ok := g.(map[string]any)
			for k := range w {
				if !ok {
					t.Errorf("%s: %s is gone", name, path)
					return
				}
				compare(path+"."+k, w[k], g[k])
			}
		case []any:
			g, ok := g.([]any)
			if !ok || len(g) != len(w) {
				t.Errorf("%s: %s has changed", name, path)
				return
			}
			for i := range w {
				compare(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])
			}
		default:
			if !reflect.DeepEqual(w, g) {
				t.Errorf("%s: %s was %v and is read as %v", name, path, w, g)
			}
		}
	}
	compare("", w, g)
}

// FuzzDecodeEntry: no bytes make the decoder panic, and what it understands it writes the same.
func FuzzDecodeEntry(f *testing.F) {
	for _, body := range bodies() {
		f.Add(entryOf(f, filled(body)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		commands, err := decodeEntry(data)
		if err != nil {
			return
		}
		if traced(data) {
			return // the trace id is read over
		}
		if again := entryOf(t, commands...); !bytes.Equal(data, again) {
			t.Fatalf("read from %x, written as %x", data, again)
		}
	})
}

func traced(data []byte) bool {
	var entry storagev1.Entry
	if proto.Unmarshal(data, &entry) != nil {
		return false
	}
	return slices.ContainsFunc(entry.GetCommands(), func(c *storagev1.Command) bool { return c.GetTraceparent() != "" })
}
