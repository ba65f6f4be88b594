package participanttest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/unisink/unisink/participant"
)

// breakage is a way to break the contract, one per check of the kit, so that the kit's own tests
// can see it turn red.
type breakage uint8

const (
	intact breakage = iota
	neverFences
	newHandleEachTime
	emptyIsYes
	visibleEarly
	repeatsWrite
	unknownFails
	noMarkers
	listsByPrefix
	listsNothing
	closePublishes
	hugeHandles
	hashedNames
	discardsPrepared
	rollbackPublishes
	takesAnyHandle
	inspectCommits
	leaksGoroutine
	losesOnCancel
	losesOnCrash
	mixesBranches
	anonymous
	oneHandle
	beginsOnce
	hidesClaims
	commitsAll
	knowsNumbers
	fencesNeighbours
	absenceProves
	hidesOlder
	closesOthers
	keepsBranches
	marksLate
	deadlineAborts
	cancelMeansNo
	swallowsErrors
	givesUp
	fenceForgets
	tearsOnCut
	tellsSecret
	hoards
	leavesFiles
)

// secret is what a broken Memory lets slip.
const secret = "open sesame"

// leaks are what a broken Memory leaves behind; the kit's own tests clear it away.
type leaks struct {
	until chan struct{} // ends goroutines
	heap  [][]byte
	files []*os.File
}

// fenced reports whether older generations are refused.
func (s *Store) fenced() bool {
	return s.broken != neverFences && s.broken != keepsBranches && !s.form.forgetful
}

// key is what older generations are told apart by.
func (s *Store) key(f fence) fence {
	if s.broken == fencesNeighbours {
		f.member = ""
	}
	return f
}

// loseDecided forgets what is prepared, whoever has decided about it. Called with mu held.
func (s *Store) loseDecided() { clear(s.prepared) }

// hides reports whether a listing leaves out what it should name. Called with mu held.
func (s *Store) hides(p *prepared) bool {
	f := fence{p.name.Namespace, p.name.Scope(), p.name.Member, p.name.Resource}
	return s.form.blind || s.broken == listsNothing || s.broken == hidesOlder && s.fences[f] > p.name.Generation
}

// pause lets others in, as a finisher does that writes its marker in a transaction of its own. Called
// with mu held, which it is again on return.
func (s *Store) pause() {
	s.mu.Unlock()
	defer s.mu.Lock()
	timer := time.NewTimer(2 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
}

// spoilt is what becomes visible of a branch. Called with mu held.
func (s *Store) spoilt(p *prepared) []string {
	records := p.records
	is := func(b breakage) bool { return s.broken == b }
	switch {
	case is(commitsAll):
		for name, other := range s.prepared {
			records = append(slices.Clone(records), other.records...)
			delete(s.prepared, name)
			s.markers[name] = participant.Committed
		}
	case is(knowsNumbers):
		number := fmt.Sprintf("%s/%d", p.name.Scope(), p.name.N)
		if s.markers[number] != 0 {
			return nil
		}
		s.markers[number] = participant.Committed
	case is(hoards):
		s.leaks.heap = append(s.leaks.heap, make([]byte, 2*memoryPerBranch))
	case is(leavesFiles):
		f, err := os.Open(os.DevNull)
		if err == nil {
			s.leaks.files = append(s.leaks.files, f)
		}
	}
	return records
}

// misled makes of a call's error what no resource may.
func (s *Store) misled(want participant.Verdict, err error) (participant.Proof, error) {
	switch {
	case s.broken == swallowsErrors && errors.Is(err, ErrInjected):
		return participant.Proof{Verdict: want, Evidence: "surely"}, nil
	case s.broken == givesUp && errors.Is(err, ErrInjected):
		return participant.Proof{}, fmt.Errorf("%w: %w", participant.ErrUndeterminable, err)
	case s.broken == tearsOnCut && errors.Is(err, errGone) && want == participant.Committed:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.committed = append(s.committed, "torn")
	}
	return participant.Proof{}, err
}
