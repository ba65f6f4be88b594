package participanttest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/unisink/unisink/participant"
)

func TestMain(m *testing.M) {
	Child(shelfOf)
	goleak.VerifyTestMain(m)
}

// memoryTarget is Memory as the kit sees it, broken in one way or none.
func memoryTarget(t testing.TB, broken breakage, form form, bounded time.Duration) Target {
	store := NewStore("m1")
	store.broken, store.form = broken, form
	store.leaks.until = make(chan struct{})
	t.Cleanup(func() {
		close(store.leaks.until)
		for _, f := range store.leaks.files {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	process := func() *Memory {
		m := store.Process()
		m.SetBounded(bounded)
		return m
	}
	return Target{
		Process: func(testing.TB) participant.Resource { return process() },
		Write: func(t testing.TB, b participant.Branch, record string) {
			if err := b.(*MemoryBranch).Write(record); err != nil {
				t.Fatalf("write: %v", err)
			}
		},
		Read:          func(testing.TB) []string { return store.Records() },
		NeverPrepared: store.NeverPrepared,
		Stepped: func(_ testing.TB, at func(step string) error) participant.Resource {
			m := process()
			m.SetHook(func(_ context.Context, call Call, when When, _ string) error {
				return at(fmt.Sprintf("%s %d", call, when))
			})
			return m
		},
		Drop: func(_ testing.TB, h participant.Handle) { store.lose(h.Name) },
		Recreate: func(testing.TB) {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.committed = nil
			clear(store.prepared)
			clear(store.markers)
		},
		Secrets: []string{secret},
	}
}

// memoryKit is Memory in one form, unbroken.
func memoryKit(form form, bounded time.Duration) Kit {
	return Kit{New: func(t testing.TB) Target { return memoryTarget(t, intact, form, bounded) }}
}

// onlyGaps fails for each gap that is not of one of the checks.
func onlyGaps(t *testing.T, c Certificate, checks ...string) {
	t.Helper()
	for _, check := range checks {
		if c.Certifies(check) {
			t.Errorf("%q is certified, and should not", check)
		}
	}
	for _, g := range c.Gaps {
		if !slices.Contains(checks, g.Check) {
			t.Errorf("%q is not certified: %s", g.Check, g.Why)
		}
	}
	if want := len(Checks()) - len(checks); len(c.Passed) != want {
		t.Errorf("%d checks are certified, want %d", len(c.Passed), want)
	}
}

func TestConformance(t *testing.T) {
	for name, kit := range map[string]Kit{"unbounded": memoryKit(form{}, 0), "bounded": memoryKit(form{}, time.Hour)} {
		t.Run(name, func(t *testing.T) {
			onlyGaps(t, Run(t, kit), "a process killed at any point loses nothing") // it is memory
		})
	}
}

// What claims little is certified for that, and the certificate says what is missing.
func TestConformance_FormOfFourFunctions(t *testing.T) {
	cert := Run(t, memoryKit(form{blind: true, forgetful: true}, 0))
	onlyGaps(t, cert,
		"O5/every call may be repeated", "O4/commit of what is unknown is no success",
		"P13/a prepare after its rollback is listed", "L3/a prepare that races with the fence leaves nothing",
		"Z2/an older generation is fenced", "Z2/a holder that wakes up late spoils nothing",
		"P16/an inspect beside a commit finds something", "inspect tells states and changes nothing",
		"L9/a listing is of one namespace", "T1/what was dropped is never proven committed", "T5/what was made anew proves no commit",
		"a process killed at any point loses nothing")
	if s := cert.String(); !strings.Contains(s, "NOT CERTIFIED  L9/a listing is of one namespace: it claims no listing") {
		t.Errorf("the certificate does not say what is missing:\n%s", s)
	}
}

// Nothing but what every adapter has: the rest is named, not passed over.
func TestWithoutMeansTheCertificateSaysSo(t *testing.T) {
	cert := Run(t, Kit{Branches: 200, New: func(t testing.TB) Target {
		whole := memoryTarget(t, intact, form{}, 0)
		return Target{Process: whole.Process, Write: whole.Write, Read: whole.Read}
	}})
	onlyGaps(t, cert,
		"rollback of what is unknown succeeds", "O4/commit of what is unknown is no success",
		"O8/a call cancelled at any step means unknown", "O7/an error at any step is never a success",
		"a process cut off at any step loses nothing", "a process killed at any point loses nothing",
		"a handle holds no secret", "T1/what was dropped is never proven committed", "T5/what was made anew proves no commit",
		"a thousand branches in bounded time and memory")
}

// recorder is a testing.TB that keeps a failure to itself.
type recorder struct {
	testing.TB
	mu              sync.Mutex // guards the rest
	failed, skipped bool
	last            string
	after           []func()
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed, r.last = true, text
}
func (r *recorder) Helper()                           {}
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) FailNow()                          { r.fail("failed"); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any) {
	r.mu.Lock()
	r.skipped, r.last = true, fmt.Sprint(args...)
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
func (r *recorder) Cleanup(f func()) { r.after = append(r.after, f) }

// judge runs a check beside the test and tells whether it failed, and with which words.
func judge(t *testing.T, check Check, target func(t testing.TB) Target) (red bool, words string) {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check.Run(r, target(r))
	}()
	<-done
	for _, f := range slices.Backward(r.after) {
		f()
	}
	if r.skipped {
		t.Fatalf("it was skipped: %s", r.last)
	}
	return r.Failed(), r.last
}

// ways are, for each check, adapters that are broken so that it must turn red; a check that can't is worthless.
func ways() map[string][]breakage {
	return map[string][]breakage{
		"a description is stable and complete":                  {anonymous},
		"what is claimed is so":                                 {hidesClaims},
		"nothing is visible before its commit":                  {visibleEarly},
		"begin may be repeated":                                 {beginsOnce},
		"prepare again gives the same handle":                   {newHandleEachTime},
		"E1/an empty branch is read-only":                       {emptyIsYes},
		"O5/every call may be repeated":                         {repeatsWrite, noMarkers},
		"commit after the process is gone":                      {losesOnCrash},
		"P7/two prepared for one epoch are told apart":          {oneHandle},
		"P6/finished in order, each shows itself alone":         {commitsAll},
		"I5/epochs of a new generation are new work":            {knowsNumbers},
		"I6/neighbours with like names do not fence each other": {fencesNeighbours},
		"rollback of what is unknown succeeds":                  {unknownFails},
		"O4/commit of what is unknown is no success":            {absenceProves},
		"P13/a prepare after its rollback is listed":            {listsNothing},
		"L3/a prepare that races with the fence leaves nothing": {hidesOlder},
		"Z2/an older generation is fenced":                      {neverFences},
		"Z2/a holder that wakes up late spoils nothing":         {closesOthers, neverFences},
		"a newer generation drops what was not prepared":        {keepsBranches},
		"P16/two finishers at once write once":                  {repeatsWrite},
		"P16/an inspect beside a commit finds something":        {marksLate},
		"inspect tells states and changes nothing":              {inspectCommits},
		"a cancelled call decides nothing":                      {losesOnCancel},
		"O8/a deadline in mid-call means unknown":               {deadlineAborts},
		"O8/a call cancelled at any step means unknown":         {cancelMeansNo},
		"O7/an error at any step is never a success":            {swallowsErrors, givesUp},
		"a process gone between any two calls loses nothing":    {fenceForgets},
		"a process cut off at any step loses nothing":           {tearsOnCut},
		"S2/close publishes nothing":                            {closePublishes},
		"discard leaves what is prepared":                       {discardsPrepared},
		"rollback hides for good":                               {rollbackPublishes},
		"L9/a listing is of one namespace":                      {listsByPrefix},
		"I7/names and handles fit and parse":                    {hugeHandles, hashedNames},
		"a handle holds no secret":                              {tellsSecret},
		"handles of others are left alone":                      {takesAnyHandle},
		"T1/what was dropped is never proven committed":         {absenceProves},
		"T5/what was made anew proves no commit":                {absenceProves},
		"a hundred branches side by side":                       {mixesBranches},
		"a thousand branches in bounded time and memory":        {hoards},
		"no goroutine is left":                                  {leaksGoroutine},
		"no file and no connection is left open":                {leavesFiles},
	}
}

func TestEveryCheckTurnsRed(t *testing.T) {
	breaks := ways()
	for _, check := range Checks() {
		if check.Name == "a process killed at any point loses nothing" {
			continue // not in memory: see the shelf
		}
		t.Run(check.Name, func(t *testing.T) {
			if len(breaks[check.Name]) == 0 {
				t.Fatal("no way to break this check's rule is known")
			}
			if waitsInVain(check.Name) {
				synctest.Test(t, func(t *testing.T) { turnsRed(t, check, breaks[check.Name]) })
				return
			}
			turnsRed(t, check, breaks[check.Name])
		})
	}
}

// waitsInVain reports a check that gives what does not come some seconds: they are spent in virtual time.
func waitsInVain(check string) bool {
	return check == "a newer generation drops what was not prepared" || check == "no file and no connection is left open"
}

func turnsRed(t *testing.T, check Check, breaks []breakage) {
	t.Helper()
	for _, broken := range breaks {
		red, words := judge(t, check, func(t testing.TB) Target { return memoryTarget(t, broken, form{}, time.Hour) })
		if !red {
			t.Errorf("stayed green although its rule was broken, way %d", broken)
		}
		t.Log(words)
	}
}

// settling lists what an opening has dropped for a moment longer, as Kafka does until its markers are written.
type settling struct {
	*Memory
	until time.Time
}

func (s *settling) Open(ctx context.Context, o participant.Opening) error {
	if o.Generation > 1 {
		s.until = time.Now().Add(100 * time.Millisecond)
	}
	return s.Memory.Open(ctx, o)
}

func (s *settling) List(ctx context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	all, err := s.Memory.List(ctx, ns)
	if time.Now().Before(s.until) {
		all = append(all, participant.Listed{Name: branchName(home, 1, 2)})
	}
	return all, err
}

func TestWhatIsOnItsWayOutMayBeListedForAMoment(t *testing.T) {
	for _, check := range Checks() {
		if check.Name != "a newer generation drops what was not prepared" {
			continue
		}
		red, words := judge(t, check, func(t testing.TB) Target {
			target := memoryTarget(t, intact, form{}, time.Hour)
			process := target.Process
			target.Process = func(t testing.TB) participant.Resource { return &settling{Memory: process(t).(*Memory)} }
			return target
		})
		if red {
			t.Errorf("red: %s", words)
		}
		return
	}
	t.Error("the check is gone")
}
