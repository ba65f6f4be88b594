package judge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/unisink/unisink/tests/jepsen-style/blackbox/house"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// searchFor bounds the search for one transaction. Each has a handful of calls, so that it never comes to that.
const searchFor = 30 * time.Second

// phase of a transaction by hand.
type phase uint8

const (
	nobody phase = iota // knows it
	announced
	committed
	aborted
)

func (p phase) String() string {
	return [...]string{"unknown to the ledger", "announced", "committed", "aborted"}[p]
}

// state is what the ledger holds of one transaction: a register that is written once, by a call or,
// once it was announced, by its deadline.
type state struct {
	phase phase
	until time.Duration // announced: before that the deadline has not passed
}

// input and output of one call.
type input struct {
	op    string
	until time.Duration // begin: its call plus the limit it asked for
}

type output struct {
	answer check.Answer
	at     time.Duration // when it came
}

// model of one transaction. An unknown answer leaves open whether the call had its effect.
func model() porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, out any) []any {
			var next []any
			for _, n := range step(s.(state), in.(input), out.(output)) {
				next = append(next, n)
			}
			return next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%s → %s", in.(input).op, out.(output).answer) },
		DescribeState:     func(s any) string { return s.(state).phase.String() },
	}
	return nm.ToModel()
}

// step returns the states that a call may leave, and none where the answer cannot have been given.
func step(s state, in input, out output) []state {
	effects := effectsOf(s, in)
	if out.answer == check.AnswerUnknown {
		var all []state
		for _, e := range effects {
			all = append(all, e.next)
		}
		return append(all, s)
	}
	if out.answer == check.AnswerRefused {
		if in.op != house.OpBegin || s.phase != nobody {
			return []state{s}
		}
		// It may have been announced all the same: by a sending whose answer was lost, so that the next one found
		// it known, and by then perhaps aborted at its deadline.
		if in.until <= out.at {
			return []state{s, {phase: aborted}}
		}
		return []state{s, {phase: announced, until: in.until}}
	}
	var all []state
	for _, e := range effects {
		if e.answer == out.answer && e.from <= out.at {
			all = append(all, e.next)
		}
	}
	return all
}

// effect is one way in which a call can end.
type effect struct {
	answer check.Answer
	next   state
	from   time.Duration // not answered so before then
}

// effectsOf lists the ways in which a call can end that finds the register in a state.
func effectsOf(s state, in input) []effect {
	yes, no := effect{answer: check.AnswerCommitted, next: state{phase: committed}}, effect{answer: check.AnswerAborted, next: state{phase: aborted}}
	switch s.phase {
	case committed:
		if in.op == house.OpBegin {
			return nil // refused
		}
		return []effect{yes}
	case aborted:
		if in.op == house.OpBegin {
			return nil
		}
		return []effect{no}
	case nobody, announced:
	}
	var all []effect
	switch in.op {
	case house.OpBegin:
		all = append(all, effect{answer: check.AnswerDone, next: state{phase: announced, until: in.until}})
		if s.phase == announced {
			all = []effect{{answer: check.AnswerDone, next: s}}
		}
	case house.OpCommit:
		all = append(all, yes)
	case house.OpRun: // it aborts by itself what cannot be prepared
		all = append(all, yes, no)
	case house.OpAbort:
		all = append(all, no)
	case house.OpOutcome:
		if s.phase == nobody {
			all = append(all, no)
		} else {
			all = append(all, effect{answer: check.AnswerDone, next: s})
		}
	}
	if s.phase == announced {
		late := no
		late.from = s.until // the deadline has passed first
		all = append(all, late)
	}
	return all
}

// calls gathers what was asked and answered of each transaction. Sweeps ask about whatever they find:
// those they told as aborted are such questions, and one that did not end well may have asked about
// anything that was prepared and not decided when it began.
func calls(events []check.Event) map[string][]porcupine.Operation {
	byTxn := map[string][]porcupine.Operation{}
	clients := map[string]int{}
	begun := map[uint64]check.Event{}
	add := func(txn, who, op string, from, to check.Event, answer check.Answer) {
		if _, known := clients[who]; !known {
			clients[who] = len(clients)
		}
		o := porcupine.Operation{
			ClientId: clients[who], Input: input{op: op, until: from.At + from.Limit}, Call: int64(from.At),
			Output: output{answer: answer, at: to.At}, Return: int64(to.At),
		}
		if answer == check.AnswerUnknown {
			o.Return = math.MaxInt64
		}
		byTxn[txn] = append(byTxn[txn], o)
	}
	var unsure []sweepCall
	for _, e := range events {
		//exhaustive:ignore
		switch e.Kind {
		case check.Invoke:
			begun[e.Call] = e
		case check.Return:
			from, ok := begun[e.Call]
			if !ok {
				continue
			}
			delete(begun, e.Call)
			if e.Op != house.OpSweep {
				add(e.Branch.Txn, e.Who, e.Op, from, e, e.Answer)
				continue
			}
			for _, txn := range e.Records {
				add(txn, e.Who, house.OpOutcome, from, e, check.AnswerAborted)
			}
			if e.Answer == check.AnswerUnknown {
				unsure = append(unsure, sweepCall{from, e})
			}
		}
	}
	for _, from := range begun { // nobody was left to be answered
		end := check.Event{At: math.MaxInt64}
		if from.Op == house.OpSweep {
			unsure = append(unsure, sweepCall{from, end})
			continue
		}
		add(from.Branch.Txn, from.Who, from.Op, from, end, check.AnswerUnknown)
	}
	for _, q := range questions(events, unsure) {
		add(q.txn, q.from.Who, house.OpOutcome, q.from, q.from, check.AnswerUnknown)
	}
	return byTxn
}

// sweepCall is a sweep of which nobody knows what it asked.
type sweepCall struct{ from, to check.Event }

type question struct {
	txn  string
	from check.Event
}

// questions are those that unsure sweeps may have asked.
func questions(events []check.Event, unsure []sweepCall) (all []question) {
	if len(unsure) == 0 {
		return nil
	}
	prepared, decided := map[string]time.Duration{}, map[string]time.Duration{}
	for _, e := range events {
		txn := e.Branch.Txn
		//exhaustive:ignore
		switch e.Kind {
		case check.Prepared:
			if _, known := prepared[txn]; !known && txn != "" {
				prepared[txn] = e.At
			}
		case check.Return:
			if _, known := decided[txn]; !known && (e.Answer == check.AnswerCommitted || e.Answer == check.AnswerAborted) {
				decided[txn] = e.At
			}
		}
	}
	for txn, at := range prepared {
		for _, s := range unsure {
			if end, known := decided[txn]; at <= s.to.At && (!known || end >= s.from.At) {
				all = append(all, question{txn, s.from})
			}
		}
	}
	return all
}

// Register asks porcupine whether the calls about each transaction are as if made one after the other.
// It names those that are not, and writes a picture of the first one beside them, if path is not empty.
func Register(events []check.Event, path string) (judged int, findings []check.Finding) {
	m := model()
	byTxn := calls(events)
	for _, txn := range slices.Sorted(maps.Keys(byTxn)) {
		ops := byTxn[txn]
		judged += len(ops)
		result, info := porcupine.CheckOperationsVerbose(m, ops, searchFor)
		if result == porcupine.Ok {
			continue
		}
		text := fmt.Sprintf("the answers about transaction %s cannot have been given one after the other: %s", txn, told(ops))
		if result == porcupine.Unknown {
			text = fmt.Sprintf("the %d calls about transaction %s could not be judged in %s", len(ops), txn, searchFor)
		}
		if len(findings) == 0 && path != "" {
			if err := porcupine.VisualizePath(m, info, path); err == nil {
				text += "; drawn in " + path
			}
		}
		findings = append(findings, check.Finding{Rule: "register", Text: text})
	}
	return judged, findings
}

// told shows calls in the order in which they were made.
func told(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	text := ""
	for i, o := range ops {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s at %.3fs: %s", o.Input.(input).op, time.Duration(o.Call).Seconds(), o.Output.(output).answer)
	}
	return text
}
