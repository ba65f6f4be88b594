package ledger

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// handOrder are the transactions run by hand in the orders in which they are asked for, so that no question and no command
// walks through all that are kept.
type handOrder struct {
	byID       order // all
	inDoubt    order // by id
	undecided  order // by deadline
	unfinished order // by the time of the decision
	unproven   int   // branches of the unfinished
}

func newHandOrder() handOrder {
	return handOrder{
		byID: order{compare: byTxnID}, inDoubt: order{compare: byTxnID},
		undecided: order{compare: byDeadline}, unfinished: order{compare: byDecision},
	}
}

func byTxnID(a, b *txn) int { return strings.Compare(string(a.ID), string(b.ID)) }

func byDeadline(a, b *txn) int { return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), byTxnID(a, b)) }

func byDecision(a, b *txn) int { return cmp.Or(cmp.Compare(a.DecidedAt, b.DecidedAt), byTxnID(a, b)) }

// put files a transaction in the place of its former record, if there is one.
func (h *handOrder) put(old, t *txn) {
	if old != nil {
		h.settle(old)
	}
	h.byID.put(t)
	switch {
	case t.Outcome == Pending:
		h.undecided.put(t)
	case t.unproven > 0:
		h.unfinished.put(t)
		h.unproven += t.unproven
	default:
		return
	}
	h.inDoubt.put(t)
}

// settle takes a record out of all but the order by id.
func (h *handOrder) settle(t *txn) {
	switch {
	case t.Outcome == Pending:
		h.undecided.take(t)
	case t.unproven > 0:
		h.unfinished.take(t)
		h.unproven -= t.unproven
	default:
		return
	}
	h.inDoubt.take(t)
}

// order holds transactions in one order, in runs of a bounded length: putting one in or taking one out costs about the
// same however many there are, and a walk can begin anywhere.
type order struct {
	compare func(a, b *txn) int
	runs    [][]*txn // none is empty
	size    int
}

const longestRun = 512

// find returns where t stands, or would be put in.
func (o *order) find(t *txn) (run, at int, found bool) {
	run, found = slices.BinarySearchFunc(o.runs, t, func(r []*txn, t *txn) int { return o.compare(r[0], t) })
	if found || run == 0 {
		return run, 0, found
	}
	run--
	at, found = slices.BinarySearchFunc(o.runs[run], t, o.compare)
	return run, at, found
}

// put takes t in, in the place of what is equal to it.
func (o *order) put(t *txn) {
	run, at, found := o.find(t)
	if found {
		o.runs[run][at] = t
		return
	}
	o.size++
	switch last := len(o.runs) - 1; {
	case last < 0 || run == last && at == longestRun:
		o.runs = append(o.runs, []*txn{t})
		return
	case len(o.runs[run]) == longestRun:
		left, right := o.runs[run][:longestRun/2], slices.Clone(o.runs[run][longestRun/2:])
		clear(o.runs[run][longestRun/2:])
		o.runs[run] = left
		o.runs = slices.Insert(o.runs, run+1, right)
		if at > len(left) {
			run, at = run+1, at-len(left)
		}
	}
	o.runs[run] = slices.Insert(o.runs[run], at, t)
}

// take takes out what is equal to t, which must be there.
func (o *order) take(t *txn) {
	run, at, found := o.find(t)
	must(found, "transaction %s is not where it was put", t.ID)
	o.size--
	if o.runs[run] = slices.Delete(o.runs[run], at, at+1); len(o.runs[run]) == 0 {
		o.runs = slices.Delete(o.runs, run, run+1)
	}
}

// first is nil when there is none.
func (o *order) first() *txn {
	if o.size == 0 {
		return nil
	}
	return o.runs[0][0]
}

// all walks from the first to the last.
func (o *order) all() iter.Seq[*txn] { return o.from(0, 0) }

// behind walks from the first that comes after t.
func (o *order) behind(t *txn) iter.Seq[*txn] {
	run, at, found := o.find(t)
	if found {
		at++
	}
	return o.from(run, at)
}

func (o *order) from(run, at int) iter.Seq[*txn] {
	return func(yield func(*txn) bool) {
		for ; run < len(o.runs); run, at = run+1, 0 {
			for _, t := range o.runs[run][at:] {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// thin takes out, from the first up to the one before past, those that are gone.
func (o *order) thin(past, gone func(*txn) bool) {
	n := 0 // runs that are looked through
	kept := [][]*txn(nil)
	for ; n < len(o.runs) && !past(o.runs[n][0]); n++ {
		was := len(o.runs[n])
		r := slices.DeleteFunc(o.runs[n], func(t *txn) bool { return !past(t) && gone(t) })
		o.size -= was - len(r)
		if len(r) > 0 {
			kept = append(kept, r)
		}
	}
	o.runs = slices.Replace(o.runs, 0, n, kept...)
}
