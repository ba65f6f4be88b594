package processor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/processortest"
	"github.com/unisink/unisink/processor/stream"
)

// tightVote is an InlineLimit in which there is room for the watermarks and hardly more.
const tightVote = 180

// sabotage is a fault that the property must see. The zero value is none.
type sabotage struct {
	operator func(inner operator) operator
	sink     func(name string, s Sink) Sink
	open     func(from []stream.Position) []stream.Position
	batch    func(b *stream.Batch)
	restore  func(r *participant.Restore, l *life)
	loaded   func(l *life)
}

// life takes a pipeline through a trial, step by step, and the model beside it.
type life struct {
	setup
	ctx   context.Context
	fault sabotage
	src   *tape
	sinks map[string]*processortest.Sink
	scope *processortest.Scope
	parts *memory

	p     *Pipeline
	task  *task
	run   *processortest.Run
	hands hands

	// Of this generation.
	gen, epochs uint64
	eof         bool
	voted       []moment

	decided moment                  // the restore point
	before  []participant.StatePart // of the one before it
	history []naiveEvent
	model   *naive
	seen    map[string]int // what happened in this life, counted
}

// moment is a cut through everything that happened.
type moment struct {
	n       uint64
	history int
	outs    int              // of the model
	at      map[string]int64 // next offset of each split that was heard of
}

// live runs a trial to its end and says what is wrong.
func live(t trial, fault sabotage) error {
	_, err := lived(t, fault)
	return err
}

// lived is live, and the life that it was.
func lived(t trial, fault sabotage) (*life, error) { return livedBy(t, fault, false) }

// livedBy takes the steps of the pipeline itself, or lets a task take them.
func livedBy(t trial, fault sabotage, task bool) (l *life, err error) {
	l = &life{
		setup: t.setup, ctx: context.Background(), fault: fault, sinks: map[string]*processortest.Sink{}, parts: newMemory(), seen: map[string]int{},
		decided: moment{at: map[string]int64{}},
	}
	l.src = &tape{known: t.ends, fault: &l.fault, logs: make([]tapeLog, t.splits)}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		if l.run != nil {
			l.hands.halt()
			err = errors.Join(err, l.scope.Close(l.ctx))
		}
	}()
	resources := map[string]participant.Resource{}
	for _, name := range []string{"results", "copy", "late", "dead"} {
		l.sinks[name] = processortest.NewSink(name)
		resources[name] = l.sink(name)
	}
	l.scope = processortest.NewScope(resources)
	l.hands = stepping{l}
	l.scope.MaxPending = 1 << 20 // nothing may wait
	if task {
		l.hands = &tasking{life: l}
		l.scope.MaxPending = 2
		l.src.feed = make(chan fed)
	}
	if t.inline > 0 {
		l.scope.InlineLimit = int(t.inline)
	}
	if err := l.restart(); err != nil {
		return l, fmt.Errorf("first start: %w", err)
	}
	for i, h := range t.ops {
		if err := l.do(h); err != nil {
			return l, fmt.Errorf("line %d, %q: %w", i+1, h, err)
		}
	}
	if err := l.last(); err != nil {
		return l, fmt.Errorf("at the end: %w", err)
	}
	return l, nil
}

// last reads what is left, drains, and looks whether every record is in one place.
func (l *life) last() error {
	if l.eof {
		if err := l.do(happening{what: opCrash}); err != nil {
			return err
		}
	}
	for more := true; more; { // a bad record begins it anew
		more = false
		for split := range int64(len(l.src.logs)) {
			for l.src.readable(split) > 0 {
				more = true
				if err := l.do(happening{opPoll, split, 10, 0}); err != nil {
					return err
				}
			}
		}
	}
	if err := l.do(happening{what: opDrain}); err != nil {
		return err
	}
	return l.partition()
}

func (l *life) do(h happening) error {
	split := h.a % int64(len(l.src.logs))
	switch h.what {
	case opPoll:
		return l.poll(split, h.b, h.c)
	case opSilence:
		if l.eof {
			return nil
		}
		if err := l.hands.silence(h.a); err != nil {
			return err
		}
		return l.happened(naiveEvent{what: "silence", waited: h.a})
	case opEOF:
		return l.end()
	case opCut:
		return l.barrier(participant.Barrier{})
	case opStop, opDrain:
		if err := l.barrier(participant.Barrier{Final: true, Drain: h.what == opDrain}); err != nil {
			return err
		}
		for len(l.voted) > 0 {
			if err := l.decide(); err != nil {
				return err
			}
		}
		return l.restart()
	case opDecide:
		return l.decide()
	case opFinish:
		if err := l.scope.Finish(l.ctx); err != nil {
			return err
		}
		return l.compare()
	case opCrash:
		return l.restart()
	case opFlood:
		for range h.b {
			l.src.put(l.setup, opFlood, split, int64(len(l.src.logs[split].records))*7%900, h.c)
		}
	case opAppear:
		if len(l.src.logs) < 5 {
			l.src.logs = append(l.src.logs, tapeLog{listed: true})
		}
	case opClose:
		l.src.logs[split].closed = true
	case opVanish:
		l.src.logs[split].gone = l.src.logs[split].closed
	default:
		l.src.put(l.setup, h.what, split, h.b, h.c)
	}
	return nil
}

// poll gives the pipeline a batch.
func (l *life) poll(split, n, waited int64) error {
	if l.eof || l.src.readable(split) < 0 {
		return nil
	}
	b, taken, ended, behind := l.src.take(split, n)
	l.note(naiveEvent{what: "batch", split: split, behind: behind, waited: waited})
	for _, r := range taken {
		l.note(naiveEvent{what: "record", split: split, record: r.naive})
		if l.setup.bad == "fail" && l.model.fates[r.naive.id] == "skipped" {
			err := l.hands.batch(b, waited)
			want := fmt.Sprintf(`record of topic "in", partition %d, offset %d: `, split, r.record.Offset)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				return fmt.Errorf("a bad record: got %w, want an error that begins with %q", err, want)
			}
			l.seen["stopped by a bad record"]++
			l.src.repair(l.setup, split, r.record.Offset)
			return l.restart()
		}
	}
	if err := l.hands.batch(b, waited); err != nil {
		return err
	}
	if ended {
		l.note(naiveEvent{what: "ended", split: split})
	}
	return l.same()
}

func (l *life) end() error {
	for split := range int64(len(l.src.logs)) {
		if l.eof || l.src.readable(split) > 0 {
			return nil
		}
	}
	l.eof = true
	if err := l.hands.end(); err != nil {
		return err
	}
	return l.happened(naiveEvent{what: "end of time"})
}

func (l *life) barrier(b participant.Barrier) error {
	l.epochs++
	b.Generation, b.N = l.gen, l.epochs
	if err := l.hands.barrier(b); err != nil {
		return err
	}
	if b.Drain {
		l.note(naiveEvent{what: "end of time"})
	}
	l.note(naiveEvent{what: "epoch", epoch: fmt.Sprintf("%d.%d", b.Generation, b.N)})
	m := moment{n: b.N, history: len(l.history), outs: len(l.model.outs), at: maps.Clone(l.decided.at)}
	for _, e := range l.history[l.decided.history:] {
		switch e.what {
		case "batch": // an empty one has a position, too
			id := strconv.FormatInt(e.split, 10)
			m.at[id] += 0
		case "record":
			m.at[strconv.FormatInt(e.split, 10)]++
		}
	}
	l.voted = append(l.voted, m)
	return l.same()
}

// decide decides the oldest epoch that was voted for.
func (l *life) decide() error {
	if len(l.voted) == 0 {
		return nil
	}
	_, _, before := l.scope.Last()
	if err := l.scope.Decide(l.ctx); err != nil {
		return err
	}
	l.before = before.Parts
	l.decided, l.voted = l.voted[0], l.voted[1:]
	l.seen["decided"]++
	return l.hands.retired()
}

// restart is kill -9 and a new process, at the restore point.
func (l *life) restart() error {
	if l.run != nil {
		l.hands.halt()
	}
	restore, run, err := l.scope.Open(l.ctx)
	if err != nil {
		return err
	}
	if l.p, err = l.build(); err != nil {
		return err
	}
	l.seen["restarts"]++
	l.seen["epochs voted for, and lost"] += len(l.voted)
	if len(restore.Parts) > 1 {
		l.seen["restarts from a store"]++
	}
	if len(restore.Parts) > 2 {
		l.seen["restarts from a base and changes"]++
	}
	if l.fault.restore != nil {
		l.fault.restore(&restore, l)
	}
	l.task = newTask(l.p, "test", 0, nil)
	if err := l.task.Restore(l.ctx, restore); err != nil {
		return err
	}
	if l.fault.loaded != nil {
		l.fault.loaded(l)
	}
	l.run, l.gen, l.epochs, l.eof, l.voted = run, restore.Generation, 0, false, nil
	if err := l.hands.start(); err != nil {
		return err
	}
	if err := l.opened(); err != nil {
		return err
	}
	if err := l.swept(); err != nil {
		return err
	}
	l.history = append(l.history[:l.decided.history:l.decided.history], naiveEvent{what: "start", splits: l.src.list()})
	l.decided.history = len(l.history)
	l.model = replay(l.setup, l.history)
	if err := l.same(); err != nil {
		return err
	}
	return l.compare()
}

// opened checks that the source was opened where the last decided epoch ends, and nowhere else.
func (l *life) opened() error {
	got := map[string]int64{}
	for _, p := range l.src.from {
		got[p.Split.ID] = p.Offset
	}
	if !maps.Equal(got, l.decided.at) {
		return fmt.Errorf("the source is opened at %v, and the restore point ends at %v", got, l.decided.at)
	}
	return nil
}

// swept checks that after a restart the store holds what restore points name, and nothing else.
func (l *life) swept() error {
	have, err := l.parts.List(l.ctx, "")
	if err != nil {
		return err
	}
	kept := l.scope.KeptParts()
	for _, id := range have {
		if !slices.Contains(kept, strings.TrimPrefix(id, "test.0.")) {
			return fmt.Errorf("the store still has %s, and restore points name %v", id, kept)
		}
	}
	_, _, last := l.scope.Last()
	for _, p := range last.Parts {
		if p.Store != "" && !slices.Contains(have, "test.0."+p.ID) {
			return fmt.Errorf("the restore point names %s, and the store has %v", p.ID, have)
		}
	}
	return nil
}

func (l *life) note(e naiveEvent) {
	l.history = append(l.history, e)
	l.model.step(e)
}

func (l *life) happened(e naiveEvent) error {
	l.note(e)
	return l.same()
}

// same compares what the pipeline says of itself with the model.
func (l *life) same() error {
	s := l.p.Status()
	got := naiveCounts{
		s.Counters.Records, s.Counters.Windowed, s.Counters.Late, s.Counters.Filtered, s.Counters.Skipped, s.Counters.DeadLettered, s.Counters.Fired,
	}
	if got != l.model.count {
		return fmt.Errorf("the pipeline counts %+v, the model %+v", got, l.model.count)
	}
	if int64(s.Watermark) != l.model.watermark {
		return fmt.Errorf("the watermark is %d, of the model %d", s.Watermark, l.model.watermark)
	}
	return nil
}

// compare compares the outputs with those of the model, epoch by epoch and in their order. Whatever is
// decided must be committed.
func (l *life) compare() error {
	want := map[string][]string{}
	for _, o := range l.model.outs[:l.decided.outs] {
		want[o.sink] = append(want[o.sink], o.epoch+" "+o.text)
	}
	want["copy"] = want["results"]
	for name, s := range l.sinks {
		var got []string
		for _, c := range s.Committed() {
			text, err := l.text(name, &c.Record)
			if err != nil {
				return fmt.Errorf("sink %q: %w", name, err)
			}
			got = append(got, fmt.Sprintf("%d.%d %s", c.Generation, c.N, text))
		}
		if !slices.Equal(got, want[name]) {
			return fmt.Errorf("sink %q holds\n  %s\nwant\n  %s", name, strings.Join(got, "\n  "), strings.Join(want[name], "\n  "))
		}
	}
	return nil
}

// text is a committed record as the model writes it.
func (l *life) text(sink string, r *stream.Record) (string, error) {
	if sink != "dead" {
		return string(r.Value), nil
	}
	return l.deadText(r)
}

// deadText checks that a dead letter is the record of the source and two headers.
func (l *life) deadText(r *stream.Record) (string, error) {
	n := len(r.Headers) - 2
	if n < 0 || r.Headers[n].Key != "unisink-reason" || r.Headers[n+1].Key != "unisink-origin" {
		return "", fmt.Errorf("a dead letter has the headers %v", r.Headers)
	}
	origin := strings.Split(string(r.Headers[n+1].Value), "/")
	if len(origin) != 3 || origin[0] != "in" {
		return "", fmt.Errorf("a dead letter comes from %q", origin)
	}
	split, err1 := strconv.Atoi(origin[1])
	offset, err2 := strconv.Atoi(origin[2])
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	was := l.src.logs[split].records[offset].record
	same := bytes.Equal(r.Key, was.Key) && bytes.Equal(r.Value, was.Value) && (r.Value == nil) == (was.Value == nil) && r.Time == was.Time &&
		slices.EqualFunc(r.Headers[:n], was.Headers, func(a, b stream.Header) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) })
	if !same {
		return "", fmt.Errorf("the dead letter %+v was the record %+v", r, was)
	}
	reason := string(r.Headers[n].Value)
	for part, word := range map[string]string{"decode: ": "decode", "map: ": "map", "out of range": "range", "overflow": "overflow", ": sour": "sour", "encode late": "late"} {
		if strings.Contains(reason, part) {
			return fmt.Sprintf("%d/%d %s", split, offset, word), nil
		}
	}
	return "", fmt.Errorf("a dead letter gives as its reason %q", reason)
}

// partition checks the law that holds whatever windows are: each record of the source is in exactly one
// of windows, late records, dead letters, filtered and skipped. It looks at the outputs alone.
func (l *life) partition() error {
	where := map[string]string{}
	put := func(id, place string) error {
		if was, ok := where[id]; ok && was != place {
			return fmt.Errorf("record %s is in %s and in %s", id, was, place)
		}
		where[id] = place
		return nil
	}
	for id := range l.model.fates {
		l.seen[l.model.fates[id]]++
	}
	var errs []error
	for _, c := range l.sinks["results"].Committed() {
		_, ids, _ := strings.Cut(string(c.Record.Value), ": ")
		ids, update := strings.CutSuffix(ids, " update")
		if update {
			l.seen["updates"]++
		}
		for _, id := range strings.Fields(ids) {
			errs = append(errs, put(id, "windows"))
		}
	}
	late, dead := l.sinks["late"].Committed(), l.sinks["dead"].Committed()
	for _, c := range late {
		errs = append(errs, put(string(c.Record.Value), "late"))
	}
	for _, c := range dead {
		text, err := l.deadText(&c.Record)
		errs = append(errs, err, put(strings.Fields(text)[0], "dead"))
	}
	c := l.p.Counters()
	var records, seen uint64
	for i := range l.src.logs {
		records += uint64(len(l.src.logs[i].records))
	}
	seen = uint64(len(where)) + c.Filtered + c.Skipped
	if !l.late {
		seen += c.Late
	} else if uint64(len(late)) != c.Late {
		errs = append(errs, fmt.Errorf("%d late records, counted %d", len(late), c.Late))
	}
	if seen != records || c.Records != records || uint64(len(dead)) != c.DeadLettered ||
		c.Windowed+c.Late+c.Filtered+c.Skipped+c.DeadLettered+c.Passed != records {
		errs = append(errs, fmt.Errorf("%d records are in one place of %d; counters %+v", seen, records, c))
	}
	return errors.Join(errs...)
}
