package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const groups = 16

func put(dst []byte, acc *int64) []byte { return binary.AppendVarint(dst, *acc) }

func get(src []byte, acc *int64) error {
	v, n := binary.Varint(src)
	if n != len(src) {
		return errors.New("not one number")
	}
	*acc = v
	return nil
}

// memory is a store in memory that counts what is written.
type memory struct {
	mu      sync.Mutex // guards what follows
	parts   map[string][]byte
	written int
	puts    int
}

func newMemory() *memory { return &memory{parts: map[string][]byte{}} }

func (*memory) Name() string { return "memory" }

func (m *memory) Put(_ context.Context, id string, body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parts[id] = slices.Clone(body)
	m.written += len(body)
	m.puts++
	return nil
}

func (m *memory) Get(_ context.Context, id string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.parts[id]; ok {
		return slices.Clone(b), nil
	}
	return nil, state.ErrNoPart
}

func (m *memory) Delete(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.parts, id)
	return nil
}

func (m *memory) List(_ context.Context, prefix string) (ids []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.parts {
		if strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// point is a restore point: what a vote named, and what the state was.
type point struct {
	generation, n uint64
	parts         []participant.StatePart
	state         map[string]string
}

func (p point) restore(generation uint64, kept []string) participant.Restore {
	return participant.Restore{
		Generation: generation, RestoreGeneration: p.generation, RestoreN: p.n, Parts: cloneParts(p.parts), KeptParts: kept,
	}
}

func cloneParts(in []participant.StatePart) []participant.StatePart {
	out := slices.Clone(in)
	for i := range out {
		out[i].Body = slices.Clone(out[i].Body)
	}
	return out
}

func config(store state.Store, keyGroups uint32) Config {
	return Config{Scope: "test.0.", Member: "main", Operator: "window", KeyGroups: keyGroups, Store: store}
}

// flat is keyed state in the plainest form.
type flat map[string]string

func (flat) Reserve(int64, int)                 {}
func (flat) Drop(int64)                         {}
func (flat) Remove(int64, uint64, []byte) error { return nil }
func (f flat) Put(start int64, _ uint64, key, value []byte) error {
	f[fmt.Sprintf("%d/%s", start, key)] = string(value)
	return nil
}

// dump is all that k holds. It takes k's touch away, so only what will not be taken any more may be dumped.
func dump(t tb, k state.Keyed, keyGroups uint32) map[string]string {
	t.Helper()
	out := flat{}
	k.Index()
	for g := range keyGroups {
		if err := state.DecodeGroup(k.AppendGroup(nil, g), g, keyGroups, out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// load restores a point into windows.
func load(t tb, s *Snapshots, r participant.Restore, k state.Keyed) error {
	t.Helper()
	return s.Load(t.Context(), r, func(meta []byte) (state.Keyed, error) {
		if string(meta) != "the operator's meta" {
			t.Errorf("meta %q", meta)
		}
		return k, nil
	})
}

func windows(keyGroups uint32) (*state.Windows[int64], state.Keyed) {
	w := new(state.Windows[int64])
	return w, state.OfWindows(w, keyGroups, put, get)
}

// take makes a snapshot and waits until it is durable.
func take(t tb, s *Snapshots, generation, n uint64, k state.Keyed, limit int) []participant.StatePart {
	t.Helper()
	snap, err := s.Take(t.Context(), participant.Barrier{Generation: generation, N: n}, []byte("the operator's meta"), k, limit)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Ready != nil {
		if err := snap.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return snap.Parts
}

func equal(t tb, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	shown := 0
	for k, v := range want {
		if got[k] != v && shown < 5 {
			t.Errorf("%s holds %q, want %q", k, got[k], v)
			shown++
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok && shown < 5 {
			t.Errorf("%s is there, and should not be", k)
			shown++
		}
	}
	t.Fatalf("%d entries, want %d", len(got), len(want))
}

// tb is what tests of both kinds have.
type tb interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

var update = flag.Bool("update", false, "rewrite the golden files")
