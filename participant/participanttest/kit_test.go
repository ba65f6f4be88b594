package participanttest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/participant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryTarget is Memory as the kit sees it, broken in one way or none.
func memoryTarget(t testing.TB, broken breakage) Target {
	store := NewStore("m1")
	store.broken = broken
	t.Cleanup(func() { close(store.leak) })
	return Target{
		Process: func(testing.TB) participant.Resource { return store.Process() },
		Write: func(t testing.TB, b participant.Branch, record string) {
			if err := b.(*MemoryBranch).Write(record); err != nil {
				t.Fatalf("write: %v", err)
			}
		},
		Read:          func(testing.TB) []string { return store.Records() },
		NeverPrepared: store.NeverPrepared,
	}
}

func TestMemoryKeepsTheContract(t *testing.T) {
	Run(t, Kit{New: func(t testing.TB) Target { return memoryTarget(t, intact) }})
}

// recorder is a testing.TB that keeps a failure to itself.
type recorder struct {
	testing.TB
	mu     sync.Mutex // guards the rest
	failed bool
	last   string
	after  []func()
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed, r.last = true, text
}
func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
func (r *recorder) Cleanup(f func()) { r.after = append(r.after, f) }

// verdict runs a check beside the test and tells whether it failed, and with which words.
func verdict(t *testing.T, check Check, broken breakage) (bool, string) {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check.Run(r, memoryTarget(r, broken))
	}()
	<-done
	for _, f := range r.after {
		f()
	}
	return r.Failed(), r.last
}

// Each check turns red by at least one way to break the rule it guards; a check that can't is worthless.
func TestEveryCheckTurnsRed(t *testing.T) {
	breaks := map[string]breakage{
		"a description is stable and complete":         anonymous,
		"nothing is visible before its commit":         visibleEarly,
		"begin may be repeated":                        beginsOnce,
		"prepare again gives the same handle":          newHandleEachTime,
		"E1/an empty branch is read-only":              emptyIsYes,
		"O5/every call may be repeated":                repeatsWrite,
		"commit after the process is gone":             losesOnCrash,
		"P7/two prepared for one epoch are told apart": oneHandle,
		"rollback of what is unknown succeeds":         unknownFails,
		"P13/a prepare after its rollback is listed":   listsNothing,
		"Z2/an older generation is fenced":             neverFences,
		"P16/two finishers at once write once":         repeatsWrite,
		"inspect tells states and changes nothing":     inspectCommits,
		"a cancelled call decides nothing":             losesOnCancel,
		"S2/close publishes nothing":                   closePublishes,
		"discard leaves what is prepared":              discardsPrepared,
		"rollback hides for good":                      rollbackPublishes,
		"L9/a listing is of one namespace":             listsByPrefix,
		"I7/names and handles fit and parse":           hugeHandles,
		"handles of others are left alone":             takesAnyHandle,
		"a hundred branches side by side":              mixesBranches,
		"no goroutine is left":                         leaksGoroutine,
	}
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) {
			broken, ok := breaks[check.Name]
			if !ok {
				t.Fatal("no way to break this check's rule is known")
			}
			red, words := verdict(t, check, broken)
			if !red {
				t.Error("stayed green although its rule was broken")
			}
			t.Log(words)
		})
	}
}

func TestNamesThatWereHashedTurnRed(t *testing.T) {
	for _, check := range Checks() {
		if check.Name == "I7/names and handles fit and parse" {
			if red, _ := verdict(t, check, hashedNames); !red {
				t.Error("stayed green although listed names can't be parsed")
			}
		}
	}
}

func TestLostMarkersTurnRed(t *testing.T) {
	for _, check := range Checks() {
		if check.Name == "O5/every call may be repeated" {
			if red, _ := verdict(t, check, noMarkers); !red {
				t.Error("stayed green although a repeated commit can't be proven")
			}
		}
	}
}
