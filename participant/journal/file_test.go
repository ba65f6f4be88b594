package journal_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAJournalThatIsNotThereIsNoEmptyOne(t *testing.T) {
	_, err := journal.At(filepath.Join(t.TempDir(), "typo")).Entries(t.Context(), "")
	if !errors.Is(err, participant.ErrMisconfigured) {
		t.Fatalf("%v, want misconfigured", err)
	}
}

func TestUpdatesOfOneKeyComeOneAfterTheOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	one, two := journal.At(path), journal.At(path) // as two processes have it
	var group sync.WaitGroup
	for _, f := range []*journal.File{one, two, one, two} {
		group.Go(func() {
			for range 5 {
				err := f.Update(t.Context(), "n", func(old []byte) ([]byte, error) {
					n, _ := strconv.Atoi(string(old)) // nothing is zero
					return []byte(strconv.Itoa(n + 1)), nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	got, err := one.Entries(t.Context(), "n")
	if err != nil || string(got["n"]) != "20" {
		t.Fatalf("counted %q, %v; want 20", got["n"], err)
	}
}

func TestEntriesAreThoseBelowAPrefix(t *testing.T) {
	f := journal.At(filepath.Join(t.TempDir(), "journal"))
	put := func(key string, value []byte) {
		t.Helper()
		if err := f.Update(t.Context(), key, func([]byte) ([]byte, error) { return value, nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []string{"a/1", "a/2", "b/1"} {
		put(k, []byte(k))
	}
	put("a/1", nil) // removed
	got, err := f.Entries(t.Context(), "a/")
	if err != nil || fmt.Sprint(got) != fmt.Sprint(map[string][]byte{"a/2": []byte("a/2")}) {
		t.Fatalf("%q, %v", got, err)
	}
	refused := errors.New("refused")
	if err := f.Update(t.Context(), "b/1", func([]byte) ([]byte, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Fatalf("%v", err)
	}
	if got, err := f.Entries(t.Context(), "b/1"); err != nil || string(got["b/1"]) != "b/1" {
		t.Fatalf("an update that was refused left %q, %v", got, err)
	}
}

func TestAWaitForTheLockEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	inside, done := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		err := journal.At(path).Update(t.Context(), "k", func([]byte) ([]byte, error) {
			close(inside)
			<-done
			return []byte("v"), nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := journal.At(path).Update(ctx, "k", func(old []byte) ([]byte, error) { return old, nil }); err == nil {
		t.Error("two were inside at once")
	}
	close(done)
	group.Wait()
}
