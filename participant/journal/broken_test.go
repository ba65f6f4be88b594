package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/journal"
)

// The library panics over such files, or faults, and keeps their lock; the process may be a coordinator's node.
func TestADamagedJournalIsAnErrorAndHoldsNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	put := func([]byte) ([]byte, error) { return []byte(strings.Repeat("v", 12000)), nil }
	for _, key := range []string{"t/1", "t/2"} {
		if err := journal.At(path).Update(t.Context(), key, put); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	filled := func(with byte) []byte {
		b := append([]byte{}, whole...)
		for i := 2 * page; i < len(b); i++ {
			b[i] = with
		}
		return b
	}
	for name, body := range map[string][]byte{
		"cut after its head": whole[:2*page], "cut off": whole[:5*page], "zeros": filled(0), "ones": filled(0xff),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, body, 0o600); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			for range 2 {
				_, reading := journal.At(path).Entries(t.Context(), "")
				for what, err := range map[string]error{"read": reading, "change": journal.At(path).Update(t.Context(), "t/1", put)} {
					if !errors.Is(err, participant.ErrMisconfigured) || !strings.Contains(err.Error(), "is damaged") {
						t.Errorf("%s: %v", what, err)
					}
				}
			}
			if took := time.Since(begun); took > 8*time.Second {
				t.Errorf("it took %s: the lock was held", took)
			}
		})
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := journal.At(path).Entries(t.Context(), ""); err != nil || len(found) != 2 {
		t.Errorf("the good copy: %d entries, %v", len(found), err)
	}
}

func TestAPanicOfTheCallerStaysAPanic(t *testing.T) {
	f := journal.At(filepath.Join(t.TempDir(), "journal"))
	for range 2 { // the lock is free again
		func() {
			defer func() {
				if got := recover(); got != "mine" {
					t.Errorf("recovered %v", got)
				}
			}()
			err := f.Update(t.Context(), "k", func([]byte) ([]byte, error) { panic("mine") })
			t.Error(err)
		}()
	}
}
