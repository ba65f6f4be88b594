package state_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/state"
)

// flat is keyed state in the plainest form: what a restore puts in, by start and key.
type flat map[string]string

var errAbsent = errors.New("absent")

func (flat) Reserve(int64, int) {}

func (f flat) Put(start int64, _ uint64, key, value []byte) error {
	f[fmt.Sprintf("%d/%s", start, key)] = string(value)
	return nil
}

func (f flat) Remove(start int64, _ uint64, key []byte) error {
	name := fmt.Sprintf("%d/%s", start, key)
	if _, ok := f[name]; !ok {
		return errAbsent
	}
	delete(f, name)
	return nil
}

func (f flat) Drop(start int64) {
	maps.DeleteFunc(f, func(name, _ string) bool { return strings.HasPrefix(name, fmt.Sprintf("%d/", start)) })
}

// whole is all that k holds, as bytes, and how much that is.
func whole(k state.Keyed, groups uint32) ([]byte, state.Size) {
	var out []byte
	size := k.Index()
	for g := range groups {
		if size.Groups[g] > 0 {
			out = k.AppendGroup(binary.AppendUvarint(out, uint64(g)), g)
		}
	}
	return out, size
}

// tracked checks, for one kind of keyed state, that its changes make of an older copy what it is now.
type tracked struct {
	k      state.Keyed
	fresh  func() state.Keyed
	groups uint32
	copied flat // as of the last Settle
}

func (x *tracked) check(t *rapid.T) {
	all, size := whole(x.k, x.groups)
	want := flat{}
	if err := state.DecodeWhole(all, x.groups, want); err != nil {
		t.Fatal(err)
	}
	if len(want) != size.Entries {
		t.Fatalf("%d entries are said to be there, and %d are written", size.Entries, len(want))
	}
	got := maps.Clone(x.copied)
	for _, start := range x.k.Gone() {
		got.Drop(start)
	}
	changes := 0
	for g := range x.groups {
		body := x.k.AppendChanges(nil, g)
		if err := state.DecodeChanges(body, g, x.groups, got); err != nil {
			t.Fatalf("group %d: %v", g, err)
		}
		d := state.Decoder{Rest: body}
		removed := d.Uvarint()
		changes += int(removed)
		for range removed {
			d.Varint()
			d.Bytes()
		}
		changes += int(d.Uvarint())
	}
	if changes != size.Changed {
		t.Fatalf("%d changes are said to be there, and %d are written", size.Changed, changes)
	}
	if !maps.Equal(got, want) {
		t.Fatalf("the changes make %v, want %v", got, want)
	}
	if !size.Touched && !maps.Equal(x.copied, want) && changes == 0 && len(x.k.Gone()) == 0 {
		t.Fatal("something has changed, and nothing is said to be touched")
	}
	if x.k.Index().Touched {
		t.Fatal("touched by nobody")
	}
	if rapid.Bool().Draw(t, "settle") {
		x.k.Settle()
		x.copied = want
		if s := x.k.Index(); s.Changed != 0 || len(x.k.Gone()) > 0 {
			t.Fatalf("%d changes after Settle, %v gone", s.Changed, x.k.Gone())
		}
	}
	// A restore makes the same of it, and writes the same again.
	back := x.fresh()
	for _, w := range size.Windows {
		back.Reserve(w.Start, w.Entries)
	}
	if err := state.DecodeWhole(all, x.groups, back); err != nil {
		t.Fatal(err)
	}
	again, _ := whole(back, x.groups)
	same := flat{}
	if err := state.DecodeWhole(again, x.groups, same); err != nil || !maps.Equal(same, want) {
		t.Fatalf("restored %v, want %v, %v", same, want, err)
	}
}

func TestTheChangesOfWindowsAreWhatHasChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.Uint32Range(1, 9).Draw(t, "groups")
		w := new(state.Windows[int64])
		x := &tracked{
			k: state.OfWindows(w, groups, put, get), groups: groups, copied: flat{},
			fresh: func() state.Keyed { return state.OfWindows(new(state.Windows[int64]), groups, put, get) },
		}
		key := rapid.StringMatching(`[a-d]{0,3}`)
		start := rapid.Int64Range(-2, 4)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for i := range rapid.IntRange(1, 5).Draw(t, "records") {
					k := []byte(key.Draw(t, "key"))
					acc, _ := w.At(start.Draw(t, "window")*1000).Upsert(state.Hash(k), k)
					*acc += int64(i) + 1
				}
			},
			"undo": func(t *rapid.T) {
				k := []byte(key.Draw(t, "key"))
				table := w.At(start.Draw(t, "window") * 1000)
				if _, made := table.Upsert(state.Hash(k), k); made {
					table.Undo()
				}
			},
			"drop":  func(t *rapid.T) { w.Drop(start.Draw(t, "window") * 1000) },
			"check": x.check,
		})
	})
}

func TestTheChangesOfSessionsAreWhatHasChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.Uint32Range(1, 9).Draw(t, "groups")
		s := new(state.Sessions[int64])
		x := &tracked{
			k: state.OfSessions(s, groups, put, get), groups: groups, copied: flat{},
			fresh: func() state.Keyed { return state.OfSessions(new(state.Sessions[int64]), groups, put, get) },
		}
		record := int64(0)
		fold := &state.Fold[int64]{
			Init: func(acc *int64) { *acc = 0 }, Add: func(acc *int64) error { *acc += record; return nil },
			Merge: func(acc, other *int64) error { *acc += *other; return nil },
		}
		closed := int64(math.MinInt64)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "records") {
					record++
					k := []byte(rapid.StringMatching(`[a-c]{0,2}`).Draw(t, "key"))
					at := rapid.Int64Range(0, 60).Draw(t, "at")
					if _, _, err := s.Add(state.Hash(k), k, at, 5, closed, fold); err != nil {
						t.Fatal(err)
					}
				}
			},
			"fire": func(t *rapid.T) {
				closed = max(closed, rapid.Int64Range(0, 70).Draw(t, "watermark"))
				_ = s.Fire(closed, func([]byte, state.Span, *int64) error { return nil })
			},
			"check": x.check,
		})
	})
}

// TestRestoredSessionsGoOn shows that a restored copy fires and joins as the original does.
func TestRestoredSessionsGoOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := int64(1)
		fold := &state.Fold[int64]{
			Init: func(acc *int64) { *acc = 0 }, Add: func(acc *int64) error { *acc += record; return nil },
			Merge: func(acc, other *int64) error { *acc += *other; return nil },
		}
		add := func(t *rapid.T, to ...*state.Sessions[int64]) {
			for range rapid.IntRange(0, 30).Draw(t, "records") {
				k := []byte(rapid.StringMatching(`[a-c]`).Draw(t, "key"))
				at := rapid.Int64Range(0, 90).Draw(t, "at")
				for _, s := range to {
					if _, _, err := s.Add(state.Hash(k), k, at, 5, math.MinInt64, fold); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		var one, two state.Sessions[int64]
		add(t, &one)
		all, size := whole(state.OfSessions(&one, 4, put, get), 4)
		view := state.OfSessions(&two, 4, put, get)
		view.Reserve(0, size.Entries)
		if err := state.DecodeWhole(all, 4, view); err != nil {
			t.Fatal(err)
		}
		add(t, &one, &two)
		var fired [2][]string
		for i, s := range []*state.Sessions[int64]{&one, &two} {
			for _, w := range []int64{30, 200} {
				_ = s.Fire(w, func(key []byte, span state.Span, acc *int64) error {
					fired[i] = append(fired[i], fmt.Sprintf("%s %v %d", key, span, *acc))
					return nil
				})
			}
		}
		if !slices.Equal(fired[0], fired[1]) {
			t.Fatalf("the original fired %v, the copy %v", fired[0], fired[1])
		}
	})
}

func FuzzOpenAndDecode(f *testing.F) {
	var w state.Windows[int64]
	for i := range 100 {
		key := fmt.Appendf(nil, "key-%d", i)
		acc, _ := w.At(int64(i%3)).Upsert(state.Hash(key), key)
		*acc = int64(i)
	}
	k := state.OfWindows(&w, 128, put, get)
	all, _ := whole(k, 128)
	framed, err := new(state.Framer).AppendSealed(nil, state.Change, []byte("x"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(all, uint8(0))
	f.Add(framed, uint8(1))
	f.Add(k.AppendChanges(nil, 3), uint8(2))
	f.Add([]byte{1, 0, 1, 'a', 0}, uint8(2))
	f.Fuzz(func(t *testing.T, in []byte, form uint8) {
		if form%3 == 1 {
			_, _, _ = new(state.Framer).Open(in)
			return
		}
		for _, fresh := range []func() state.Keyed{
			func() state.Keyed { return state.OfWindows(new(state.Windows[int64]), 128, put, get) },
			func() state.Keyed { return state.OfSessions(new(state.Sessions[int64]), 128, put, get) },
		} {
			k := fresh()
			var err error
			if form%3 == 2 {
				err = state.DecodeChanges(in, 3, 128, k)
			} else {
				err = state.DecodeWhole(in, 128, k)
			}
			if err != nil {
				if !errors.Is(err, state.ErrFormat) {
					t.Fatalf("%v does not say that the part can't be read", err)
				}
				continue
			}
			all, size := whole(k, 128)
			again := fresh()
			if err := state.DecodeWhole(all, 128, again); err != nil {
				t.Fatalf("what was decoded can't be encoded: %v", err)
			}
			if got := again.Index(); got.Entries != size.Entries {
				t.Fatalf("%d entries of %d came back", got.Entries, size.Entries)
			}
		}
	})
}
