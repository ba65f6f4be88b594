package resolver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unisink/unisink/internal/branchname"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// sweeping is what a lane remembers from one sweep to the next.
type sweeping struct {
	try
	due time.Time // of the next one, debts or not
	// soon is set when something must be looked at again before that.
	soon   time.Time
	byHand time.Duration // what the coordinator says; 0 before it has
	// unknown are transactions by hand that nobody knows, by when they were first listed.
	unknown map[string]time.Time
	// doubtful are things that were found in doubt, by handle name, with when that was first so. They are told once
	// they were found so twice: between a listing and its judgement a thing may be finished, and its record retired.
	doubtful map[string]*doubt
	// perhaps are aborted branches of which no listing so far has shown that they left nothing.
	perhaps map[branchKey]perhaps
	// warned is what was last said of them in the log, and when.
	warned   string
	warnedAt time.Time
}

// perhaps is an aborted branch that may be prepared.
type perhaps struct {
	name    string    // of what may be it; empty: what is prepared cannot be listed
	earlier bool      // that is of an earlier incarnation, before a backup was restored
	again   time.Time // when it is looked for
}

type doubt struct {
	*unisinkv1.InDoubtFind
	since time.Time
	seen  int
}

func newSweeping() sweeping {
	return sweeping{unknown: map[string]time.Time{}, doubtful: map[string]*doubt{}, perhaps: map[branchKey]perhaps{}}
}

// debtKey names a sweep debt.
type debtKey struct {
	chain
	generation uint64
}

func debtOf(d *unisinkv1.SweepDuty) debtKey {
	return debtKey{chain{d.GetScope().GetPipeline(), d.GetScope().GetShard(), d.GetMember(), d.GetResource(), ""}, d.GetGeneration()}
}

const (
	// lookAgain is how soon something that was found in doubt is looked at again.
	lookAgain = time.Second
	// perhapsAgain is how soon an aborted branch is looked for again that may be there under a process's own name, and
	// clockMargin how far the clocks of resources and coordinators may be apart: as far as those of clients are let be.
	perhapsAgain, clockMargin = 10 * time.Second, time.Minute
	// warnedEach is how often the log says again what a proof still waits for.
	warnedEach = time.Minute
	// judgedAtOnce bounds one question for judgements.
	judgedAtOnce = 500
)

// job is one sweep: what it knows when it begins. It owns its copies.
type job struct {
	ns    participant.Namespace
	debts []*unisinkv1.SweepDuty
	// aborted are branches of announced and aborted transactions, for whose proof the ledger waits.
	aborted map[branchKey]*unisinkv1.Duty
	// ask are transactions that were unknown when they were listed long enough ago.
	ask   map[string]bool
	at    time.Time // when it was made
	blind bool      // the resource cannot list everything that is prepared
}

// swept is what came of it.
type swept struct {
	begun   time.Time // of the last listing
	listing []judged
	byHand  time.Duration
	paid    []debtKey
	proven  []branchKey
	perhaps map[branchKey]perhaps // aborted branches that are not proven, and what may be theirs
	asked   []string
	err     error
}

// judged is a thing that was found, and what is to become of it.
type judged struct {
	participant.Listed
	sentence unisinkv1.Sentence
	why      string
	ended    bool // this sweep has ended it
	proven   bool // and the ledger waited for that, and has it
	err      error
}

// startSweep starts a sweep when one is due: for debts, for the interval, or to look again.
func (l *lane) startSweep(ctx context.Context) {
	s, now := &l.sweep, time.Now()
	debts, aborted := l.owed()
	early := len(debts) > 0 || len(aborted) > 0 || !s.soon.IsZero() && !now.Before(s.soon)
	if s.flying || now.Before(s.next) || !early && now.Before(s.due) {
		return
	}
	j := job{ns: l.now.ns, debts: debts, aborted: aborted, ask: map[string]bool{}, at: now, blind: l.blind()}
	for txn, first := range s.unknown {
		if s.byHand > 0 && now.Sub(first) >= s.byHand {
			j.ask[txn] = true
		}
	}
	s.begin()
	s.soon = time.Time{}
	s.due = now.Add(cmp.Or(l.r.c.SweepInterval, l.now.interval, time.Minute))
	l.beside(ctx, func(ctx context.Context) func() {
		done := l.sweepNow(ctx, j)
		return func() { l.swept(ctx, j, done) }
	})
}

// owed are the debts that are not left to a member, and the aborted branches of this resource that need a proof. Where nothing
// can be listed no debt is paid: that would say that somebody has looked.
func (l *lane) owed() (debts []*unisinkv1.SweepDuty, aborted map[branchKey]*unisinkv1.Duty) {
	is, _ := l.identity()
	looks := !l.blind() || mutant.On("resolver/looked-before-paid")
	for _, d := range l.now.sweeps {
		held := d.GetHeld() && l.now.age(d.GetClosedAtMs()) < l.r.c.HeldFor
		ours := d.GetIdentity().GetKind() == is.GetKind() && d.GetIdentity().GetIdentity() == is.GetIdentity()
		if ours && looks && !held && !l.since(l.paid[debtOf(d)]) {
			debts = append(debts, d)
		}
	}
	for k, at := range l.paid {
		if at.Before(l.now.asOf) {
			delete(l.paid, k)
		}
	}
	now := time.Now()
	for _, d := range l.now.duties {
		b := d.GetBranch()
		if b.GetTxn() == "" || d.GetHandle().GetName() != "" || b.GetResource() != l.alias || l.since(l.proven[keyOf(b)]) || now.Before(l.sweep.perhaps[keyOf(b)].again) {
			continue
		}
		if aborted == nil {
			aborted = map[branchKey]*unisinkv1.Duty{}
		}
		aborted[keyOf(b)] = d
	}
	return debts, aborted
}

// sweepNow lists the namespace, has what it finds judged, and ends what is dead. For debts it lists twice: what was
// being prepared while the first list was made shows in the second (L3). A debt is paid when both listings were made
// after its generation was closed, as the orders have it, and nothing dead is left of it. What cannot list is not asked to.
func (l *lane) sweepNow(ctx context.Context, j job) swept {
	var out swept
	passes := 1
	switch {
	case j.blind:
		passes = 0
	case len(j.debts) > 0 && !mutant.On("resolver/debts-listed-twice"):
		passes = 2
	}
	stuck := map[debtKey]bool{}
	for range passes {
		out.begun = time.Now()
		listing, byHand, err := l.look(ctx, j)
		if err != nil {
			out.err = err
			return out
		}
		out.listing, out.byHand = listing, byHand
		out.err = errors.Join(out.err, l.question(ctx, j, &out))
		l.dropAll(ctx, out.listing, j)
		for _, x := range out.listing {
			if x.err != nil {
				stuck[debtKey{chain{x.Name.Pipeline, x.Name.Shard, x.Name.Member, x.Name.Resource, ""}, x.Name.Generation}] = true
				out.err = errors.Join(out.err, x.err)
			}
			if x.proven {
				out.proven = append(out.proven, keyOf(branchOf(x)))
			}
		}
	}
	out.err = errors.Join(out.err, l.pay(ctx, j, stuck, &out), l.neverPrepared(ctx, j, &out))
	return out
}

// errList is of a resource that did not list; what look returns else is the coordinator's.
var errList = errors.New("list what is prepared")

// look lists, and has judged what is there.
func (l *lane) look(ctx context.Context, j job) ([]judged, time.Duration, error) {
	limited, cancel := context.WithTimeout(ctx, l.r.c.Attempt)
	listed, err := l.f.List(limited, j.ns)
	cancel()
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errList, err)
	}
	var out []judged
	var byHand time.Duration
	for len(listed) > 0 {
		n := min(len(listed), judgedAtOnce)
		req := &unisinkv1.JudgeRequest{}
		for _, x := range listed[:n] {
			req.Found = append(req.Found, found(x, j.ns))
		}
		got, err := l.r.calls.Judge(ctx, req)
		if err != nil {
			return nil, 0, fmt.Errorf("ask what is to become of %d things that were found: %w", n, err)
		}
		if len(got.GetJudgements()) != n {
			return nil, 0, fmt.Errorf("%w: %d judgements of %d things", participant.ErrBug, len(got.GetJudgements()), n)
		}
		for i, x := range listed[:n] {
			s := got.GetJudgements()[i]
			out = append(out, judged{Listed: x, sentence: sentence(s.GetSentence()), why: s.GetWhy()})
		}
		byHand = time.Duration(got.GetByHandTimeoutMs()) * time.Millisecond
		listed = listed[n:]
	}
	return out, byHand, nil
}

// sentence is the coordinator's, and nobody else's.
func sentence(s unisinkv1.Sentence) unisinkv1.Sentence {
	if s == unisinkv1.Sentence_SENTENCE_LEAVE && mutant.On("resolver/judged-by-ledger") {
		return unisinkv1.Sentence_SENTENCE_ROLL_BACK
	}
	return s
}

// question asks for the outcome of what nobody knows and was listed long ago too, which aborts it for good.
func (l *lane) question(ctx context.Context, j job, out *swept) error {
	verdicts := map[string]unisinkv1.Sentence{}
	var errs []error
	for i := range out.listing {
		x := &out.listing[i]
		txn := x.Name.Txn
		if x.sentence != unisinkv1.Sentence_SENTENCE_ASK || !j.ask[txn] && !mutant.On("resolver/listed-twice") {
			continue
		}
		verdict, known := verdicts[txn]
		if !known {
			o, err := l.r.c.Client.Outcome(ctx, txn)
			switch {
			case err != nil && !errors.Is(err, participant.ErrTooOld):
				errs = append(errs, err)
				verdict = unisinkv1.Sentence_SENTENCE_ASK
			case err == nil && o != participant.OutcomeAborted:
				verdict = unisinkv1.Sentence_SENTENCE_LEAVE // decided meanwhile; the next listing is judged by that
			default:
				verdict = unisinkv1.Sentence_SENTENCE_ROLL_BACK
				l.r.log.InfoContext(ctx, "aborted what nobody knew", obs.Txn(txn))
				out.asked = append(out.asked, txn)
			}
			verdicts[txn] = verdict
		}
		x.sentence = verdict
		if verdict == unisinkv1.Sentence_SENTENCE_ROLL_BACK {
			x.why = "nobody knew of transaction " + txn + ", and it was aborted by the question for it"
		}
	}
	return errors.Join(errs...)
}

// dropAll rolls back what is dead, some at a time: one that hangs holds up few others.
func (l *lane) dropAll(ctx context.Context, listing []judged, j job) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range listing {
		if x := &listing[i]; x.sentence == unisinkv1.Sentence_SENTENCE_ROLL_BACK {
			g.Go(func() error { x.err = l.drop(ctx, x, j); return nil })
		}
	}
	_ = g.Wait() // each keeps its own error
}

// drop rolls a dead thing back.
func (l *lane) drop(ctx context.Context, x *judged, j job) error {
	proof, err := l.bring(ctx, x.Handle, false)
	if err != nil {
		return fmt.Errorf("%s: %w", x.Name, err)
	}
	x.ended = true
	if proof.Verdict != participant.RolledBack {
		l.r.log.ErrorContext(ctx, "heuristic outcome: what was never decided is committed",
			obs.Branch(x.Name.String()), obs.Resource(x.Name.Resource), obs.Cause(x.why), obs.Proof(proof.Evidence))
	} else {
		l.r.log.InfoContext(ctx, "rolled back what nobody will decide",
			obs.Branch(x.Name.String()), obs.Resource(x.Name.Resource), obs.Cause(x.why), obs.Proof(proof.Evidence))
	}
	if d := j.aborted[keyOf(branchOf(*x))]; d != nil && x.Name.Txn != "" {
		err = l.prove(ctx, d, proof, 0)
		x.proven = err == nil
	}
	return err
}

// branchOf is the branch of a transaction by hand that something is listed as.
func branchOf(x judged) *unisinkv1.BranchRef {
	return &unisinkv1.BranchRef{Txn: x.Name.Txn, Resource: x.Name.Resource}
}

// pay tells the ledger of the debts of which nothing is left.
func (l *lane) pay(ctx context.Context, j job, stuck map[debtKey]bool, out *swept) error {
	req := &unisinkv1.PaySweepRequest{Meta: l.r.c.Client.NewMeta()}
	for _, d := range j.debts {
		if !stuck[debtOf(d)] && len(req.GetSweeps()) < judgedAtOnce {
			req.Sweeps = append(req.Sweeps, d)
		}
	}
	if len(req.GetSweeps()) == 0 {
		return nil
	}
	if _, err := l.r.calls.PaySweep(ctx, req); err != nil {
		return fmt.Errorf("report %d sweeps: %w", len(req.GetSweeps()), err)
	}
	for _, d := range req.GetSweeps() {
		out.paid = append(out.paid, debtOf(d))
		l.r.log.InfoContext(ctx, "swept after a generation", obs.Scope(fmt.Sprintf("%s/%d", d.GetScope().GetPipeline(), d.GetScope().GetShard())),
			obs.Gen(d.GetGeneration()), obs.Member(d.GetMember()), obs.Resource(d.GetResource()))
	}
	return nil
}

// neverPrepared proves that announced branches of aborted transactions left nothing, by a listing after the decision.
// What a process has prepared by hand under names of its own, as in Kafka, may be any of them that was decided since: as
// long as it is there nothing is proven. Nor is it in a resource that cannot list, nor while something of an earlier
// incarnation may be the branch, which is left alone.
func (l *lane) neverPrepared(ctx context.Context, j job, out *swept) error {
	there := map[chain]bool{}
	var standing []participant.Listed
	for _, x := range out.listing {
		there[chain{txn: x.Name.Txn, resource: x.Name.Resource}] = true
		if !x.ended && !mutant.On("resolver/names-of-its-own") {
			standing = append(standing, x.Listed)
		}
	}
	out.perhaps = map[branchKey]perhaps{}
	left := map[branchKey]*unisinkv1.Duty{}
	for k, d := range j.aborted {
		if there[chain{txn: k.txn, resource: k.resource}] {
			continue // ended, and proven by that
		}
		if name := mayBe(standing, k, d); j.blind && !mutant.On("resolver/cannot-list-is-no-proof") || name != "" {
			out.perhaps[k] = perhaps{name: name}
			continue
		}
		left[k] = d
	}
	if len(left) == 0 {
		return nil
	}
	earlier, err := l.earlier(ctx, j.ns)
	if err != nil {
		return err
	}
	var errs []error
	for k, d := range left {
		if name := mayBe(earlier, k, d); name != "" {
			out.perhaps[k] = perhaps{name: name, earlier: true}
			continue
		}
		proof := participant.Proof{Verdict: participant.RolledBack, Evidence: "nothing of it is listed after it was aborted"}
		if err := l.prove(ctx, d, proof, 0); err != nil {
			errs = append(errs, err)
			continue
		}
		out.proven = append(out.proven, k)
	}
	return errors.Join(errs...)
}

// mayBe is the name of what is listed and is, or may be, an aborted branch; empty: nothing is.
func mayBe(listed []participant.Listed, k branchKey, d *unisinkv1.Duty) string {
	latest := time.UnixMilli(d.GetDecidedAtMs()).Add(clockMargin)
	for _, x := range listed {
		named := x.Name.Txn == k.txn && x.Name.Resource == k.resource
		if named || x.Name.Pipeline == branchname.HandPipeline && !x.Since.After(latest) {
			return x.Name.String()
		}
	}
	return ""
}

// earlier lists what is prepared under earlier incarnations of the namespace, from before a backup was restored. Whoever
// announced a transaction then has prepared it under that name, and may have aborted it since.
func (l *lane) earlier(ctx context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	var all []participant.Listed
	for n := uint64(1); n < ns.Incarnation && !mutant.On("resolver/earlier-incarnations"); n++ {
		then := participant.Namespace{Name: ns.Name, Incarnation: n}
		limited, cancel := context.WithTimeout(ctx, l.r.c.Attempt)
		listed, err := l.f.List(limited, then)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%w under %s, from before a backup was restored: %w", errList, then, err)
		}
		all = append(all, listed...)
	}
	return all, nil
}
