package resolver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Prepared is one thing that a listing found prepared and not finished, and what is to become of it.
type Prepared struct {
	participant.Listed
	// Resource is the resource's own text.
	Resource string
	// Sentence is the ledger's, and Why says what it rests on.
	Sentence unisinkv1.Sentence
	Why      string
	// Ended: it was dead and has been rolled back.
	Ended bool
	// Err says why it could not be.
	Err error
}

// Finished is one decided branch that was brought to its end, or could not be.
type Finished struct {
	Branch *unisinkv1.BranchRef
	// Handle has no name where the branch was announced alone, and nobody has told that it was prepared.
	Handle *unisinkv1.Handle
	// Resource is the own text of the resource that it is in, or would be; empty: none that answered.
	Resource string
	Outcome  unisinkv1.Outcome
	Proof    participant.Proof
	// Err says why it is not finished; Proof is then empty.
	Err error
}

// NoAnswer is the error of a resource that did not answer in the time that it had: what became of the call is unknown.
// It wraps the call's own error.
type NoAnswer struct {
	Resource string // its text for people
	Asked    string // what it was "asked" or "told"
	Within   time.Duration
	Err      error
}

func (e *NoAnswer) Error() string {
	out := context.DeadlineExceeded.Error()
	why := e.Err.Error()
	for strings.HasSuffix(why, out) { // that is said already
		why = strings.TrimRight(strings.TrimSuffix(why, out), ": ")
	}
	return fmt.Sprintf("%s did not answer within %s when it was %s (%s)",
		e.Resource, e.Within.Round(time.Millisecond), e.Asked, cmp.Or(why, "look whether it can be reached, and try again"))
}

func (e *NoAnswer) Unwrap() error { return e.Err }

// told names a resource in an error of it that came after some time.
func told(text, asked string, begun time.Time, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &NoAnswer{Resource: text, Asked: asked, Within: time.Since(begun), Err: err}
	}
	return fmt.Errorf("%s: %w", text, err)
}

// half ends after half of the time that is left, if that is limited.
func half(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, time.Until(end)/2)
	}
	return context.WithCancel(ctx)
}

// Look lists every resource once and has judged what is there. With sweep it rolls back what is dead and nothing
// else; what is decided is for Finish. It looks at all resources side by side, so that each has all of ctx's time. The
// error joins those of whole resources, and names each, as a NoAnswer does; what others hold is returned all the same. It is for use
// instead of Run.
func (r *Resolver) Look(ctx context.Context, sweep bool) (all []Prepared, err error) {
	found, errs := make([][]Prepared, len(r.lanes)), make([]error, len(r.lanes))
	var g sync.WaitGroup
	for i, l := range r.lanes {
		g.Go(func() { found[i], errs[i] = r.lookAt(ctx, l, sweep) })
	}
	g.Wait()
	return slices.Concat(found...), errors.Join(errs...)
}

// lookAt is Look at one resource.
func (r *Resolver) lookAt(ctx context.Context, l *lane, sweep bool) (all []Prepared, err error) {
	begun := time.Now()
	d, err := l.ask(ctx)
	text := cmp.Or(d.Text, l.said.text)
	if err != nil {
		return nil, told(text, "asked what it is", begun, err)
	}
	// What is listed is judged by a ledger that is at least as new as the listing.
	o, err := r.calls.ListDuties(ctx, &unisinkv1.ListDutiesRequest{ByHandAtMost: 1}) // all may be more than a message holds
	if err != nil {
		return nil, fmt.Errorf("%s: ask for the namespace: %w", text, err)
	}
	j := job{ns: participant.Namespace{Name: o.GetNamespace(), Incarnation: o.GetIncarnation()}}
	begun = time.Now()
	listing, _, err := l.look(ctx, j)
	if errors.Is(err, errList) {
		return nil, told(text, "asked what is prepared in it", begun, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	if sweep {
		l.dropAll(ctx, listing, j)
	}
	for _, x := range listing {
		all = append(all, Prepared{Listed: x.Listed, Resource: text, Sentence: x.sentence, Why: x.why, Ended: x.ended, Err: x.err})
	}
	return all, nil
}

// Finish brings to their end the decided branches of one transaction, or of all if txn is empty, as far as they lie in
// the resources and nothing earlier of the same participant and resource is in front of them (P6). What was announced,
// aborted and not told of as prepared is looked for in the resource of that name; a listing without it proves that nothing
// is left. Branches whose member lives are finished as well: two at once do no harm. Resources are worked on side by side: one that does not
// say what it is within half of ctx's time is left out, and nothing more is asked of one that did not answer. The error
// joins those of whole resources. It is for use instead of Run.
func (r *Resolver) Finish(ctx context.Context, txn string) (all []Finished, err error) {
	listed, namespace, err := r.duties(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask what is to be done: %w", err)
	}
	h, err := r.reach(ctx)
	h.ns = namespace
	var duties []*unisinkv1.Duty
	for _, d := range listed {
		if txn == "" || txnOf(d.GetBranch()) == txn {
			duties = append(duties, d)
		}
	}
	all = make([]Finished, len(duties))
	var g sync.WaitGroup
	for l, own := range h.apart(duties) {
		g.Go(func() {
			proven := map[chain]bool{}
			var announced []int
			for _, i := range own {
				if l != nil && duties[i].GetHandle().GetName() == "" {
					announced = append(announced, i)
					continue
				}
				all[i] = h.finish(ctx, duties[i], proven)
			}
			h.announced(ctx, l, announced, duties, all)
		})
	}
	g.Wait()
	return all, err
}

// byHand is the work of one Finish.
type byHand struct {
	r       *Resolver
	ns      participant.Namespace
	reached map[string]*lane // by kind and identity
	text    map[*lane]string // what people call it
	blind   map[*lane]bool   // it cannot list everything that is prepared
	mu      sync.Mutex       // guards silent; held for memory only
	silent  map[*lane]error  // did not answer, and is asked nothing more
}

func identityOf(kind, identity string) string { return kind + "\x00" + identity }

// reach asks every resource what it is, side by side.
func (r *Resolver) reach(ctx context.Context) (*byHand, error) {
	ctx, cancel := half(ctx)
	defer cancel()
	said, errs := make([]participant.Description, len(r.lanes)), make([]error, len(r.lanes))
	var g sync.WaitGroup
	for i, l := range r.lanes {
		g.Go(func() {
			begun := time.Now()
			if said[i], errs[i] = l.ask(ctx); errs[i] != nil {
				errs[i] = told(l.said.text, "asked what it is", begun, errs[i])
			}
		})
	}
	g.Wait()
	h := &byHand{r: r, reached: map[string]*lane{}, text: map[*lane]string{}, blind: map[*lane]bool{}, silent: map[*lane]error{}}
	for i, l := range r.lanes {
		if errs[i] == nil {
			h.reached[identityOf(said[i].Kind, said[i].Identity)], h.text[l], h.blind[l] = l, cmp.Or(said[i].Text, l.said.text), !said[i].CanList
		}
	}
	return h, errors.Join(errs...)
}

// lane is the resource of a duty, if it has answered. What was announced alone is looked for by the name of its resource.
func (h *byHand) lane(d *unisinkv1.Duty) *lane {
	if d.GetHandle().GetName() == "" {
		for l := range h.text {
			if l.handOwn(d) {
				return l
			}
		}
		return nil
	}
	return h.reached[identityOf(d.GetHandle().GetKind(), d.GetHandle().GetIdentity())]
}

// apart are the places of duties by the resource that their chain begins in: a chain stays together, in its order.
func (h *byHand) apart(duties []*unisinkv1.Duty) map[*lane][]int {
	first, out := map[chain]*lane{}, map[*lane][]int{}
	for i, d := range duties {
		c := chainOf(d.GetBranch())
		if _, known := first[c]; !known {
			first[c] = h.lane(d)
		}
		out[first[c]] = append(out[first[c]], i)
	}
	return out
}

func (h *byHand) unfinished(d *unisinkv1.Duty, l *lane) Finished {
	return Finished{Branch: d.GetBranch(), Handle: d.GetHandle(), Resource: h.text[l], Outcome: d.GetOutcome()}
}

// finish finishes one branch, if nothing stands in front of it.
func (h *byHand) finish(ctx context.Context, d *unisinkv1.Duty, proven map[chain]bool) Finished {
	l, handle := h.lane(d), d.GetHandle()
	f := h.unfinished(d, l)
	switch {
	case handle.GetName() == "":
		f.Err = fmt.Errorf("it was announced, and nobody has told that it was prepared: none of the resources that answered has the name %s, "+
			"by which it is looked for", d.GetBranch().GetResource())
	case l == nil:
		f.Err = fmt.Errorf("none of the resources that answered is %s %s", handle.GetKind(), handle.GetIdentity())
	case d.GetWaits() && !proven[chainOf(d.GetBranch())]:
		f.Err = errors.New("an earlier branch of the same participant and resource comes first")
	default:
		if f.Err = owned(handle, d.GetBranch(), h.ns.Name); f.Err != nil {
			break
		}
		f.Proof, f.Err = h.bring(ctx, l, d)
		switch {
		case f.Err == nil:
			f.Err = l.prove(ctx, d, f.Proof, 0)
		case errors.Is(f.Err, participant.ErrUndeterminable):
			h.r.undeterminable(ctx, d.GetBranch(), f.Err)
		}
		proven[chainOf(d.GetBranch())] = f.Err == nil
	}
	return f
}

// announced ends, among all duties, those that were announced alone, as a sweep that never rests does: what a listing after
// their abort shows of them is rolled back, and the others have left nothing.
func (h *byHand) announced(ctx context.Context, l *lane, which []int, duties []*unisinkv1.Duty, all []Finished) {
	if len(which) == 0 {
		return
	}
	j := job{ns: h.ns, aborted: map[branchKey]*unisinkv1.Duty{}, blind: h.blind[l]}
	at, there := map[branchKey]int{}, map[branchKey]bool{}
	for _, i := range which {
		all[i] = h.unfinished(duties[i], l)
		k := keyOf(duties[i].GetBranch())
		j.aborted[k], at[k] = duties[i], i
	}
	var out swept
	out.listing, out.err = h.list(ctx, l, j)
	for _, x := range out.listing {
		k := keyOf(branchOf(x))
		if i, is := at[k]; is && x.Name.Txn != "" && all[i].Err == nil {
			there[k] = true
			all[i].Proof, all[i].Err = h.dropped(ctx, l, x, duties[i])
		}
	}
	if out.err == nil {
		begun := time.Now()
		if out.err = l.neverPrepared(ctx, j, &out); errors.Is(out.err, errList) {
			out.err = told(h.text[l], "asked what is prepared in it", begun, out.err)
			h.heed(l, out.err)
		}
	}
	for k, i := range at {
		switch x, doubtful := out.perhaps[k]; {
		case there[k]:
		case doubtful:
			all[i].Err = errors.New(x.waits(k))
		case slices.Contains(out.proven, k):
			all[i].Proof = participant.Proof{Verdict: participant.RolledBack, Evidence: "nothing of it is listed after it was aborted"}
		default:
			all[i].Err = out.err
		}
	}
}

// list lists one resource, unless it cannot or has left another question without an answer.
func (h *byHand) list(ctx context.Context, l *lane, j job) ([]judged, error) {
	if silent := h.said(l); silent != nil || j.blind {
		return nil, silent
	}
	begun := time.Now()
	listing, _, err := l.look(ctx, j)
	if errors.Is(err, errList) {
		err = told(h.text[l], "asked what is prepared in it", begun, err)
		h.heed(l, err)
	}
	return listing, err
}

// dropped rolls back what is prepared of an aborted transaction.
func (h *byHand) dropped(ctx context.Context, l *lane, x judged, d *unisinkv1.Duty) (participant.Proof, error) {
	if x.sentence != unisinkv1.Sentence_SENTENCE_ROLL_BACK {
		return participant.Proof{}, fmt.Errorf("it is prepared as %s, and left alone: %s", x.Name, x.why)
	}
	proof, err := l.bring(ctx, x.Handle, false)
	if err == nil {
		err = l.prove(ctx, d, proof, 0)
	}
	if err != nil {
		return participant.Proof{}, err
	}
	return proof, nil
}

// said is why a resource is asked nothing more; nil: it may be asked.
func (h *byHand) said(l *lane) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.silent[l]
}

// heed remembers a resource that has not answered in its time.
func (h *byHand) heed(l *lane, err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent[l] = err
}

// bring makes one attempt, unless the resource has left another one without an answer.
func (h *byHand) bring(ctx context.Context, l *lane, d *unisinkv1.Duty) (participant.Proof, error) {
	if silent := h.said(l); silent != nil {
		return participant.Proof{}, silent
	}
	begun, what := time.Now(), "told to commit"
	commit := d.GetOutcome() != unisinkv1.Outcome_OUTCOME_ABORTED
	if !commit {
		what = "told to roll back"
	}
	proof, err := l.bring(ctx, handleFromWire(d.GetHandle()), commit)
	if errors.Is(err, context.DeadlineExceeded) {
		err = told(h.text[l], what, begun, err)
		h.heed(l, err)
	}
	return proof, err
}
