package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/state"
)

// chainOf is a store with a base of two parts and three changes, and the last restore point.
func chainOf(t *testing.T) (*memory, []participant.StatePart, map[string]string) {
	t.Helper()
	store := newMemory()
	w, k := windows(groups)
	s := New(config(store, groups))
	add := func(first, n int) {
		for i := first; i < first+n; i++ {
			key := fmt.Appendf(nil, "customer-%06d", i)
			acc, _ := w.At(int64(i%3)*1000).Upsert(state.Hash(key), key)
			*acc += int64(i)
		}
	}
	add(0, 60_000)
	s.perEntry = 600 // a base of more than one part
	take(t, s, 1, 1, k, 100)
	var parts []participant.StatePart
	for n := range 3 {
		add(n*700, 700)
		parts = take(t, s, 1, uint64(n+2), k, 400)
	}
	if len(s.chain.links) < 5 || s.chain.links[0].info.whole.count == groups {
		t.Fatalf("the chain is %+v", s.chain.links)
	}
	return store, parts, dump(t, k, groups)
}

func TestAChainThatIsNotWholeIsRefusedByName(t *testing.T) {
	store, parts, want := chainOf(t)
	_, k := windows(groups)
	if err := load(t, New(config(store, groups)), point{parts: parts}.restore(2, nil), k); err != nil {
		t.Fatal(err)
	}
	equal(t, dump(t, k, groups), want)

	last := len(parts) - 1
	lie := func(m *memory, from, to string) { m.parts["test.0."+to] = m.parts["test.0."+from] }
	for name, c := range map[string]struct {
		damage func(m *memory, p []participant.StatePart) []participant.StatePart
		names  int // the part that the error must name
		says   string
	}{
		"a change is missing in the list": {func(_ *memory, p []participant.StatePart) []participant.StatePart {
			return slices.Delete(p, last-1, last)
		}, 0, "names 4 parts"},
		"the newest change is missing in the list": {func(_ *memory, p []participant.StatePart) []participant.StatePart {
			return p[:last]
		}, 0, "names 4 parts"},
		"another part stands last": {func(_ *memory, p []participant.StatePart) []participant.StatePart {
			p[last] = p[last-1]
			return p
		}, 0, "last part"},
		"changes are in the wrong order": {func(_ *memory, p []participant.StatePart) []participant.StatePart {
			p[last-1], p[last-2] = p[last-2], p[last-1]
			return p
		}, last - 1, "comes behind"},
		"a part is missing in the store": {func(m *memory, p []participant.StatePart) []participant.StatePart {
			delete(m.parts, "test.0."+p[last].ID)
			return p
		}, last, "no such state part"},
		"a part lies under another's id": {func(m *memory, p []participant.StatePart) []participant.StatePart {
			lie(m, p[last-1].ID, p[last].ID)
			return p
		}, last, "what lies there"},
		"a part is damaged": {func(m *memory, p []participant.StatePart) []participant.StatePart {
			b := m.parts["test.0."+p[1].ID]
			b[len(b)/2] ^= 4
			return p
		}, 1, "checksum"},
		"a part is cut off": {func(m *memory, p []participant.StatePart) []participant.StatePart {
			m.parts["test.0."+p[1].ID] = m.parts["test.0."+p[1].ID][:100]
			return p
		}, 1, "checksum"},
		"a part is empty": {func(m *memory, p []participant.StatePart) []participant.StatePart {
			m.parts["test.0."+p[2].ID] = nil
			return p
		}, 2, "too short"},
		"the first part is missing": {func(_ *memory, p []participant.StatePart) []participant.StatePart {
			return p[1:]
		}, 1, "no first part"},
		"a part of a newer version": {func(m *memory, p []participant.StatePart) []participant.StatePart {
			m.parts["test.0."+p[last].ID] = sealed(t, []byte{sectionChain + 1, 0})
			return p
		}, last, "section 5 is newer than this program"},
		"a first part of a newer version": {func(_ *memory, p []participant.StatePart) []participant.StatePart {
			p[0].Body = sealed(t, []byte{sectionChain + 1, 0})
			return p
		}, 0, "section 5 is newer than this program"},
		"nothing is left": {func(*memory, []participant.StatePart) []participant.StatePart { return nil }, -1, "holds no state"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			for id, b := range store.parts {
				m.parts[id] = slices.Clone(b)
			}
			ids := slices.Clone(parts)
			broken := c.damage(m, cloneParts(parts))
			_, k := windows(groups)
			err := New(config(m, groups)).Load(t.Context(), point{parts: broken}.restore(2, nil), func([]byte) (state.Keyed, error) { return k, nil })
			if !errors.Is(err, state.ErrFormat) && !errors.Is(err, participant.ErrMisconfigured) {
				t.Fatalf("got %v", err)
			}
			if c.names >= 0 && !strings.Contains(err.Error(), ids[c.names].ID) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want the part %v and %q", err, c.names, c.says)
			}
		})
	}
}

func sealed(t testing.TB, payload []byte) []byte {
	t.Helper()
	b, err := new(state.Framer).AppendSealed(nil, state.Change, payload)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStateThatTheOperatorHasNoPlaceForIsRefused(t *testing.T) {
	store, parts, _ := chainOf(t)
	none := func([]byte) (state.Keyed, error) { return nil, nil }
	err := New(config(store, groups)).Load(t.Context(), point{parts: parts}.restore(2, nil), none)
	if !errors.Is(err, state.ErrFormat) || !strings.Contains(err.Error(), "keeps none") {
		t.Errorf("got %v", err)
	}
	_, k := windows(groups)
	if err := load(t, New(config(nil, groups)), point{parts: parts}.restore(2, nil), k); !errors.Is(err, participant.ErrMisconfigured) {
		t.Errorf("without a store: %v", err)
	}
}

// elsewhere is an empty store of another name.
type elsewhere struct{ *memory }

func (elsewhere) Name() string { return "elsewhere" }

// A part that is missing stops a pipeline, so its message says where it was looked for and what there is to do.
func TestAMissingPartSaysWhatToDo(t *testing.T) {
	store, parts, _ := chainOf(t)
	at := slices.IndexFunc(parts, func(p participant.StatePart) bool { return p.Store != "" })
	for name, c := range map[string]struct {
		store state.Store
		says  []string
	}{
		"the store lost it": {store, []string{"was written to memory, and is not there any more", "put it back"}},
		"another store":     {elsewhere{newMemory()}, []string{"was written to memory, and is looked for in elsewhere", "use the store that it was written to"}},
		"no store":          {nil, []string{"it lies in memory", "state_dir or state_store"}},
	} {
		t.Run(name, func(t *testing.T) {
			delete(store.parts, "test.0."+parts[at].ID)
			_, k := windows(groups)
			err := load(t, New(config(c.store, groups)), point{parts: parts}.restore(2, nil), k)
			says := append(c.says, parts[at].ID)
			if c.store != nil {
				says = append(says, "`unisink pipeline show test`", "`unisink pipeline rewind test/0 --to EPOCH`", "no such state part")
			}
			for _, text := range says {
				if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in: %v", text, err)
				}
			}
		})
	}
}

// TestSnapshotsOfOlderProgramsAreRead has files that were written before there were changes.
func TestSnapshotsOfOlderProgramsAreRead(t *testing.T) {
	file := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	w, k := windows(groups)
	for i := range 200 {
		key := fmt.Appendf(nil, "key-%d", i)
		acc, _ := w.At(int64(i%3)*1000).Upsert(state.Hash(key), key)
		*acc = int64(i)
	}
	want := dump(t, k, groups)
	part := func(index int, store string, body []byte) participant.StatePart {
		return participant.StatePart{ID: fmt.Sprintf("main.window.3.7.%d", index), Operator: "window", KeyGroupLast: groups - 1, Store: store, Body: body}
	}
	store := newMemory()
	store.parts["test.0.main.window.3.7.1"], store.parts["test.0.main.window.3.7.2"] = file("split-1.bin"), file("split-2.bin")
	for name, parts := range map[string][]participant.StatePart{
		"inline":       {part(0, "", file("whole.bin"))},
		"in the store": {part(0, "", file("split-0.bin")), part(1, "memory", nil), part(2, "memory", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			w, k := windows(groups)
			s := New(config(store, groups))
			if err := load(t, s, point{parts: parts}.restore(4, nil), k); err != nil {
				t.Fatal(err)
			}
			// It goes on from there, whole at first.
			key := []byte("key-7")
			acc, made := w.At(1000).Upsert(state.Hash(key), key)
			if made || *acc != 7 {
				t.Fatalf("key-7 holds %d, made %v", *acc, made)
			}
			next := take(t, s, 4, 1, k, 100)
			_, again := windows(groups)
			if err := load(t, New(config(store, groups)), point{parts: next}.restore(5, nil), again); err != nil {
				t.Fatal(err)
			}
			equal(t, dump(t, again, groups), want)
		})
	}
}

// TestWhatLiesOnDiskStaysReadable compares with a file of a chain, and reads it.
func TestWhatLiesOnDiskStaysReadable(t *testing.T) {
	if testing.Short() {
		t.Skip("compares bytes in one goroutine; takes a second under the race detector")
	}
	store, parts, want := chainOf(t)
	var out []byte
	for _, p := range parts {
		body := p.Body
		if p.Store != "" {
			body = store.parts["test.0."+p.ID]
		}
		_, payload, err := new(state.Framer).Open(body)
		if err != nil {
			t.Fatal(err)
		}
		shown := payload[:min(len(payload), 150)]
		out = fmt.Appendf(out, "%s groups %d to %d, %d bytes, begins\n%x\n", p.ID, p.KeyGroupFirst, p.KeyGroupLast, len(payload), shown)
	}
	out = fmt.Appendf(out, "%d entries\n", len(want))
	golden := filepath.Join("testdata", "chain.golden")
	if *update {
		if err := os.WriteFile(golden, out, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(out) {
		t.Errorf("the form of a snapshot has changed; give it a new section and go on reading the old one, then -update\n%s", out)
	}
}

func FuzzLoad(f *testing.F) {
	w, k := windows(groups)
	s := New(config(newMemory(), groups))
	for i := range 1000 {
		key := fmt.Appendf(nil, "key-%d", i)
		acc, _ := w.At(int64(i%2)*1000).Upsert(state.Hash(key), key)
		*acc = int64(i)
	}
	for n, from := range []int{0, 300, 0} {
		for i := range 300 {
			key := fmt.Appendf(nil, "key-%d", from+i)
			acc, _ := w.At(0).Upsert(state.Hash(key), key)
			*acc++
		}
		parts := take(f, s, 1, uint64(n+1), k, 100)
		_, first, err := s.frames.Open(parts[0].Body)
		if err != nil {
			f.Fatal(err)
		}
		store := s.cfg.Store.(*memory)
		_, last, err := s.frames.Open(store.parts["test.0."+parts[len(parts)-1].ID])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(slices.Clone(first), slices.Clone(last))
	}
	f.Add([]byte{sectionWhole, 0}, []byte{sectionKeyed})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		store := newMemory()
		store.parts["test.0.main.window.1.1.1"] = sealed(t, second)
		parts := []participant.StatePart{
			{ID: "main.window.1.1.0", Operator: "window", Body: sealed(t, first)},
			{ID: "main.window.1.1.1", Operator: "window", Store: "memory"},
		}
		_, k := windows(groups)
		s := New(config(store, groups))
		err := s.Load(t.Context(), point{parts: parts}.restore(2, nil), func([]byte) (state.Keyed, error) { return k, nil })
		if err != nil {
			if !errors.Is(err, state.ErrFormat) {
				t.Fatalf("%v does not say that the part can't be read", err)
			}
			return
		}
		// What was read can be written, and read again.
		before := dump(t, k, groups)
		next := take(t, s, 2, 1, k, 100)
		_, again := windows(groups)
		if err := s.Load(t.Context(), point{parts: next}.restore(3, nil), func([]byte) (state.Keyed, error) { return again, nil }); err != nil {
			t.Fatal(err)
		}
		equal(t, dump(t, again, groups), before)
	})
}

func TestAGroupThatIsTooLargeIsRefusedWhenItIsWritten(t *testing.T) {
	win, k := windows(1)
	for i := range 100 {
		key := fmt.Appendf(nil, "key-%d", i)
		win.At(0).Upsert(state.Hash(key), key)
	}
	k.Index()
	var w partWriter
	w.begin(nil, "a", "", true, 0, nil)
	w.most = 500
	if err := w.group(k, 0, true, 100); !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "more key groups") {
		t.Errorf("got %v", err)
	}
}
