package state_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/state"
)

func put(dst []byte, acc *int64) []byte { return binary.AppendVarint(dst, *acc) }

func get(src []byte, acc *int64) error {
	v, n := binary.Varint(src)
	if n != len(src) {
		return errors.New("not one number")
	}
	*acc = v
	return nil
}

func TestATableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table state.Table[int64]
		model := map[string]int64{}
		key := rapid.StringMatching(`[a-d]{0,4}`)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := key.Draw(t, "key")
				acc, made := table.Upsert(state.Hash([]byte(k)), []byte(k))
				if _, there := model[k]; made == there {
					t.Fatalf("key %q: made %v, there %v", k, made, there)
				}
				*acc++
				model[k]++
			},
			"undo": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if _, made := table.Upsert(state.Hash([]byte(k)), []byte(k)); made {
					table.Undo()
				}
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 20).Draw(t, "rarely") == 0 {
					table.Clear()
					clear(model)
				}
			},
			"": func(t *rapid.T) {
				var keys []string
				err := table.Sorted(func(k []byte, acc *int64) error {
					keys = append(keys, string(k))
					if *acc != model[string(k)] {
						t.Fatalf("key %q holds %d, want %d", k, *acc, model[string(k)])
					}
					return nil
				})
				if want := slices.Sorted(maps.Keys(model)); err != nil || !slices.Equal(keys, want) || table.Len() != len(want) {
					t.Fatalf("keys %q, want %q, %v", keys, want, err)
				}
			},
		})
	})
}

func TestKeysKeepTheirGroupForEver(t *testing.T) {
	// FNV-1a of these keys, and their groups: stored state depends on both.
	for key, want := range map[string]struct {
		hash  uint64
		group uint32
	}{
		"":       {0xcbf29ce484222325, 0x25},
		"a":      {0xaf63dc4c8601ec8c, 0x0c},
		"foobar": {0x85944171f73967e8, 0x68},
	} {
		if h := state.Hash([]byte(key)); h != want.hash || state.Group(h, 128) != want.group {
			t.Errorf("key %q: hash %x, group %d", key, h, state.Group(h, 128))
		}
	}
}

func TestADamagedFrameIsRefused(t *testing.T) {
	var f state.Framer
	frame, err := f.AppendSealed(nil, state.Base, bytes.Repeat([]byte("unisink "), 1000))
	if err != nil {
		t.Fatal(err)
	}
	if len(frame) > 1000 {
		t.Errorf("%d bytes: it was not compressed", len(frame))
	}
	for i := range frame {
		bad := slices.Clone(frame)
		bad[i] ^= 0x10
		if _, _, err := new(state.Framer).Open(bad); !errors.Is(err, state.ErrFormat) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, _, err := new(state.Framer).Open(frame[:i]); !errors.Is(err, state.ErrFormat) {
			t.Fatalf("cut at byte %d: %v", i, err)
		}
	}
}

func TestADirectoryKeepsParts(t *testing.T) {
	ctx := context.Background()
	root := filepath.Join(t.TempDir(), "a", "b")
	d, err := state.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"p.0.main.w.1.2.1", "p.0.main.w.1.2.2", "q.0.main.w.1.2.1"} {
		if err := d.Put(ctx, id, []byte(id)); err != nil {
			t.Fatal(err)
		}
	}
	// What a killed process left half-written is never seen.
	for name, age := range map[string]time.Duration{".writing-1": time.Minute, ".writing-2": 2 * time.Hour} {
		f := filepath.Join(root, name)
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	d, err = state.OpenDir(root) // another process
	if err != nil {
		t.Fatal(err)
	}
	ids, err := d.List(ctx, "p.")
	if err != nil || !slices.Equal(ids, []string{"p.0.main.w.1.2.1", "p.0.main.w.1.2.2"}) {
		t.Errorf("%q, %v", ids, err)
	}
	if left, err := filepath.Glob(filepath.Join(root, ".writing-*")); err != nil || len(left) != 1 {
		t.Errorf("half-written: %q, %v; want the young one alone", left, err)
	}
	if body, err := d.Get(ctx, ids[1]); err != nil || string(body) != ids[1] {
		t.Errorf("%q, %v", body, err)
	}
	for range 2 {
		if err := d.Delete(ctx, ids[1]); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Get(ctx, ids[1]); !errors.Is(err, state.ErrNoPart) {
		t.Errorf("got %v", err)
	}
	for _, id := range []string{"", "../x", "a/b", ".hidden", "a b"} {
		if err := d.Put(ctx, id, nil); err == nil {
			t.Errorf("id %q was taken", id)
		}
	}
}

func BenchmarkUpsert(b *testing.B) {
	var table state.Table[int64]
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "customer-%04d", i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		k := keys[i%len(keys)]
		acc, _ := table.Upsert(state.Hash(k), k)
		*acc++
		i++
	}
}
