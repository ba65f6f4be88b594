package verify

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/unisink/unisink/processor/stream"
)

// The headers that say where a record of a late output or a dead letter stood, and why it is one.
const (
	OriginHeader = "unisink-origin"
	ReasonHeader = "unisink-reason"
	// ours begins every header that a pipeline or sink adds.
	ours = "unisink-"
)

// digest stands for what a sink keeps of a record.
type digest [16]byte

// side is what a sink of copies holds: by where the records stood, or, where that is not told, by what
// they are.
type side struct {
	c        *Copies
	byOrigin map[string]*held
	byForm   map[digest]*held
	// byContent is byForm without the times, where the sink stamps records that have none.
	byContent map[digest]*untimed
}

// untimed are records of a sink that differ in nothing but their times.
type untimed struct {
	all  []*held
	next int // those before it are taken
}

func (u *untimed) first() *held {
	for u != nil && u.next < len(u.all) {
		if x := u.all[u.next]; x.taken < x.n {
			return x
		}
		u.next++
	}
	return nil
}

// held is one record in a sink, or several equal ones.
type held struct {
	form     digest
	content  digest // where the sink stamps
	n, taken int
	place    string
	epoch    Epoch
	noReason bool
	// why it should not be there, if that is known.
	why string
	// cands are records that came late enough to be it.
	cands []*arrival
}

type deadPiece struct {
	a *arrival
	x *held
}

// readCopies reads what late, dead and passed records the sinks hold.
func (e *evaluator) readCopies(ctx context.Context) (err error) {
	read := func(c *Copies) *side {
		if c == nil || err != nil {
			return nil
		}
		var s *side
		if s, err = e.readSide(ctx, c); err != nil {
			err = fmt.Errorf("read sink %q: %w", c.Name, err)
		}
		return s
	}
	e.late, e.dead = read(e.job.Late), read(e.job.Dead)
	for i := range e.job.Passed {
		e.passed = append(e.passed, read(&e.job.Passed[i]))
	}
	return err
}

func (e *evaluator) readSide(ctx context.Context, c *Copies) (*side, error) {
	s := &side{c: c, byOrigin: map[string]*held{}, byForm: map[digest]*held{}, byContent: map[digest]*untimed{}}
	marked := c == e.job.Late || c == e.job.Dead
	tick := e.ticker("sink " + c.Name)
	err := c.Reader.Read(ctx, func(o Output) error {
		tick()
		if e.beyond(c.Name, &o) {
			return nil
		}
		e.report.Compared++
		r := &stream.Record{Key: o.Key, Value: o.Value, Headers: o.Headers, Time: o.Time}
		form := c.digest(r, c.Time)
		var x *held
		if origin, ok := header(o.Headers, OriginHeader); ok && marked {
			if x = s.byOrigin[origin]; x == nil {
				x = &held{}
				s.byOrigin[origin] = x
			}
		} else if x = s.byForm[form]; x == nil {
			x = &held{}
			s.byForm[form] = x
			s.addContent(x, r)
		}
		if x.n++; x.n == 1 {
			x.form, x.place, x.epoch = form, o.Place, Epoch{o.Generation, o.N}
			if c.stamps() {
				x.content = c.digest(r, false)
			}
			if c == e.job.Dead && c.Headers {
				reason, _ := header(o.Headers, ReasonHeader)
				x.noReason = reason == ""
			}
		}
		return nil
	})
	return s, err
}

// beyond reports whether an output is of an epoch behind the cut, or superseded, which is not judged. One that was not
// even decided must not be there.
func (e *evaluator) beyond(sink string, o *Output) bool {
	at, cut := Epoch{o.Generation, o.N}, e.job.Cut
	if !at.known() || !cut.Proven.known() || !at.after(cut.Proven) {
		return e.superseded(sink, at)
	}
	if cut.Decided.known() && at.after(cut.Decided) {
		e.report.Different = append(e.report.Different, Case{
			Sink: sink, Key: o.Place, Foreign: true, Why: fmt.Sprintf("it is of epoch %s, and the last that was decided is %s", at, cut.Decided),
		})
	}
	return true
}

// header returns the last header of a name: what a pipeline adds stands behind what a record had.
func header(headers []stream.Header, name string) (value string, ok bool) {
	for i := len(headers) - 1; i >= 0; i-- {
		if headers[i].Key == name {
			return string(headers[i].Value), true
		}
	}
	return "", false
}

// stamps: a record without a time has one in the sink that nobody can foretell.
func (c *Copies) stamps() bool { return c.Time && c.Stamps }

// addContent makes a record of the sink known by what it is but for its time.
func (s *side) addContent(x *held, r *stream.Record) {
	if !s.c.stamps() {
		return
	}
	content := s.c.digest(r, false)
	if s.byContent[content] == nil {
		s.byContent[content] = &untimed{}
	}
	s.byContent[content].all = append(s.byContent[content].all, x)
}

// digest takes of a record what the sink keeps, without the headers that pipelines add.
func (c *Copies) digest(r *stream.Record, timed bool) (d digest) {
	h := sha256.New()
	part := func(b []byte) {
		var n [9]byte
		if b != nil {
			n[0] = 1
		}
		binary.BigEndian.PutUint64(n[1:], uint64(len(b)))
		_, _ = h.Write(n[:]) // a hash never fails
		_, _ = h.Write(b)
	}
	value := r.Value
	if c.Form != nil {
		value = c.Form(value)
	}
	part(value)
	if c.Key {
		part(r.Key)
	}
	if c.Headers {
		for _, x := range r.Headers {
			if !strings.HasPrefix(x.Key, ours) {
				part([]byte(x.Key))
				part(x.Value)
			}
		}
	}
	if timed {
		part(binary.BigEndian.AppendUint64(nil, uint64(r.Time)))
	}
	copy(d[:], h.Sum(nil))
	return d
}

// form is what the sink must hold of a record of the source, with its time if the sink keeps times, or without.
func (s *side) form(r *stream.Record, timed bool) (digest, error) {
	if s.c.Want == nil {
		return s.c.digest(r, timed), nil
	}
	want, err := s.c.Want(r)
	if err != nil {
		return digest{}, err
	}
	return s.c.digest(&want, timed), nil
}

// has returns where a record is in the sink and not taken yet; nil: it is not there.
func (s *side) has(r *stream.Record, origin string) *held {
	if x := s.byOrigin[origin]; x != nil {
		return x
	}
	if len(s.byForm) == 0 {
		return nil
	}
	form, err := s.form(r, s.c.Time)
	if err != nil {
		return nil
	}
	if x := s.byForm[form]; x != nil && x.taken < x.n {
		return x
	}
	if r.Time != 0 || !s.c.stamps() {
		return nil
	}
	content, err := s.form(r, false)
	if err != nil {
		return nil
	}
	return s.byContent[content].first()
}

// take is has, and the record is accounted for.
func (s *side) take(r *stream.Record, origin string) *held {
	x := s.has(r, origin)
	if x != nil {
		x.taken++
	}
	return x
}

// unwanted notes why a record should be in none of some sinks, in case one holds it.
func (e *evaluator) unwanted(a *arrival, why string, sinks ...*side) {
	for _, s := range sinks {
		if s == nil || len(s.byOrigin)+len(s.byForm) == 0 {
			continue
		}
		if x := s.has(a.r, a.origin); x != nil && x.why == "" {
			x.why = fmt.Sprintf("the record %s %s", a.origin, why)
		}
	}
}

// refuses says why a record cannot be written to the sink, which makes it bad.
func (s *side) refuses(r *stream.Record) error {
	if s.c.Want == nil {
		return nil
	}
	if _, err := s.c.Want(r); err != nil {
		return fmt.Errorf("sink %q: %w", s.c.Name, err)
	}
	return nil
}

// passOn takes a record that goes to every sink, or to none if one cannot take it.
func (e *evaluator) passOn(a *arrival) {
	for _, s := range e.passed {
		if err := s.refuses(a.r); err != nil {
			e.bad(a, err)
			return
		}
	}
	e.count(a, &e.report.Passed)
	e.unwanted(a, "is fine", e.dead)
	var first *held
	firstIn := ""
	for _, s := range e.passed {
		x := s.take(a.r, a.origin)
		switch {
		case x == nil && a.inCut:
			why := "it is not there"
			if first != nil && first.epoch.known() {
				why = fmt.Sprintf("it is not there, and in sink %q since epoch %s", firstIn, first.epoch)
			}
			e.report.Missing = append(e.report.Missing, Case{Sink: s.c.Name, Key: a.origin, Why: why})
		case x == nil:
		case first == nil:
			first, firstIn = x, s.c.Name
		case x.n == 1 && first.n == 1 && x.epoch.known() && first.epoch.known() && x.epoch != first.epoch:
			e.report.Different = append(e.report.Different, Case{
				Sink: s.c.Name, Key: a.origin, Why: fmt.Sprintf("it is of epoch %s, and of %s in sink %q", x.epoch, first.epoch, firstIn),
			})
		}
	}
}

// deadLetter takes a record that must be a dead letter, unchanged.
func (e *evaluator) deadLetter(a *arrival, cause error) {
	e.count(a, &e.report.Dead)
	x := e.dead.take(a.r, a.origin)
	if x == nil {
		if a.inCut {
			e.report.Missing = append(e.report.Missing, Case{Sink: e.dead.c.Name, Key: a.origin, Why: "it is not among the dead letters, and can't be read: " + cause.Error()})
		}
		return
	}
	e.sameAs(e.dead, x, a)
	if x.noReason {
		e.report.Different = append(e.report.Different, Case{Sink: e.dead.c.Name, Key: a.origin, Why: "the dead letter at " + x.place + " says no reason"})
	}
}

// sameAs compares a record that is known by where it stood.
func (e *evaluator) sameAs(s *side, x *held, a *arrival) {
	form, err := s.form(a.r, s.c.Time)
	if err == nil && form != x.form && a.r.Time == 0 && s.c.stamps() {
		if content, bad := s.form(a.r, false); bad == nil && content == x.content {
			return
		}
	}
	switch {
	case err != nil:
		e.undeterminable(Case{Sink: s.c.Name, Key: a.origin, Why: "what must stand there can't be computed: " + err.Error()})
	case form != x.form:
		e.report.Different = append(e.report.Different, Case{Sink: s.c.Name, Key: a.origin, Why: "it is not what it was in the source, at " + x.place})
	}
}

// fineAndDead takes a dead letter with which nothing is wrong by itself. It may have been too much for a sum.
func (e *evaluator) fineAndDead(a *arrival, x *held) {
	x.taken++
	e.report.Dead++
	e.sameAs(e.dead, x, a)
	e.deadIn = append(e.deadIn, &deadPiece{keep(a), x})
}

// keep is an arrival that outlives its record's memory.
func keep(a *arrival) *arrival {
	b := *a
	b.r = &stream.Record{Offset: a.r.Offset}
	return &b
}

// fromLate takes a record that may have been late, and a record like it is in the late output.
func (e *evaluator) fromLate(a *arrival) {
	if x := e.late.byOrigin[a.origin]; x != nil || e.ordered() {
		x = e.late.take(a.r, a.origin)
		e.sameAs(e.late, x, a)
		e.isLate(a)
		return
	}
	// Which of several equal records it is shows when all are known.
	x := e.late.has(a.r, a.origin)
	x.cands = append(x.cands, keep(a))
}

func (e *evaluator) isLate(a *arrival) {
	e.count(a, &e.report.Late)
	if e.p.Window.Kind == Session {
		return
	}
	p := a.piece()
	for start := floor(a.seen.At, e.every); start+e.size > a.seen.At; start -= e.every {
		id := windowID{start: start, key: a.seen.Key}
		e.lateIn[id] = append(e.lateIn[id], p)
	}
}

// onTimeAndLate takes a record of the late output that cannot have been late.
func (e *evaluator) onTimeAndLate(a *arrival, end int64) {
	e.isLate(a)
	e.report.Different = append(e.report.Different, Case{
		Sink: e.late.c.Name, Key: a.origin, Window: interval(end-max(e.size, e.gap), end),
		Why: fmt.Sprintf("it is in the late output, and was on time: its own split's event time had come to %s then", moment(a.mark)),
	})
}

// lostLate takes a record that was late for certain and is not in the late output.
func (e *evaluator) lostLate(a *arrival) {
	e.count(a, &e.report.Late)
	if a.inCut {
		e.report.Missing = append(e.report.Missing, Case{Sink: e.late.c.Name, Key: a.origin, Why: "it came after its window was over, and is not in the late output"})
	}
}
