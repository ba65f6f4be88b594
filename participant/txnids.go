package participant

import (
	"maps"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/mutant"
)

// ids are those that a client has drawn and nobody has used. Of such a one the ledger knows nothing, and it need not
// be asked: as long as the coordinator takes ids of this process's clock, and answers. It is safe for concurrent use.
type ids struct {
	mu    sync.Mutex // guards what follows; held for memory only
	drawn map[string]moment
	taken moment // when the newest id was drawn that the coordinator has taken; zero: none, or it was silent since
}

// moment is a time by the clock on the wall, which ids carry and which can be set, and by one that only goes on.
type moment struct {
	wall time.Time
	on   time.Duration
}

func (m moment) zero() bool { return m.wall.IsZero() }

const (
	// trusted is how long an id may lie unused, and how long ago the coordinator may have taken another, for it not to be
	// asked about.
	trusted = 5 * time.Second
	// clockMoved is by how much the clock on the wall may be off the other one meanwhile.
	clockMoved = time.Second
	// manyDrawn bounds what is remembered; ids that are forgotten are asked about.
	manyDrawn = 10000
)

func newIDs() *ids { return &ids{drawn: map[string]moment{}} }

// draw remembers an id.
func (i *ids) draw(id string, now moment) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.drawn) >= manyDrawn {
		maps.DeleteFunc(i.drawn, func(_ string, at moment) bool { return now.on-at.on > trusted })
	}
	if len(i.drawn) < manyDrawn {
		i.drawn[id] = now
	}
}

// use forgets an id, and reports when it was drawn, if it was here, and whether it is surely unknown to the ledger and
// will be taken.
func (i *ids) use(id string, now moment) (at moment, unknown bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at, here := i.drawn[id]
	if !mutant.On("participant/drawn-id-used-once") {
		delete(i.drawn, id)
	}
	if !here || i.taken.zero() {
		return at, false
	}
	steps := at.wall.Sub(i.taken.wall) - (at.on - i.taken.on)
	return at, now.on-at.on <= trusted && now.on-i.taken.on <= trusted && steps.Abs() < clockMoved
}

// took notes that the coordinator has taken an id that was drawn then.
func (i *ids) took(at moment) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !at.zero() && at.on >= i.taken.on {
		i.taken = at
	}
}

// doubt has every id asked about until another is taken: the coordinator was silent or refused one.
func (i *ids) doubt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !mutant.On("participant/silence-doubts") {
		i.taken = moment{}
	}
}
