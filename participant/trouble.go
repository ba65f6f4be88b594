package participant

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/mutant"
)

// troubles are what a member tries in vain, for those who look from outside: an open resource that
// cannot be opened looks like any restore, and a decided branch that cannot be finished like a
// member that runs. A nil one takes no notes.
type troubles struct {
	mu  sync.Mutex         // guards now; held for memory only
	now map[string]trouble // by what is tried
}

type trouble struct {
	since time.Time
	text  string
}

// note says that what is tried with a resource has failed again.
func (t *troubles) note(what, alias string, err error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := troubleKey(what, alias)
	v, known := t.now[key]
	if !known {
		v.since = time.Now()
	}
	v.text = fmt.Sprintf("resource %q: tries to %s since %s: %v", alias, what, v.since.UTC().Format("15:04:05 UTC"), err)
	if forPeople(err) && !mutant.On("participant/told-to-a-person") {
		v.text += personNeeded
	}
	if t.now == nil {
		t.now = map[string]trouble{}
	}
	t.now[key] = v
}

// personNeeded stands behind what no repetition mends.
const personNeeded = "; that does not pass by itself: a person must act, and it is tried on"

// over says that it succeeded, or is not tried any longer.
func (t *troubles) over(what, alias string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.now, troubleKey(what, alias))
}

func troubleKey(what, alias string) string { return alias + " " + what }

// String is one sentence, the oldest trouble first; empty when there is none.
func (t *troubles) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]trouble, 0, len(t.now))
	for _, v := range t.now {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b trouble) int {
		if n := a.since.Compare(b.since); n != 0 {
			return n
		}
		return strings.Compare(a.text, b.text)
	})
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = v.text
	}
	return strings.Join(texts, "; ")
}
