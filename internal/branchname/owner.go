package branchname

import (
	"fmt"
	"strings"

	"github.com/unisink/unisink/internal/mutant"
)

// Owner is whose branch a handle must name. A resource, generation or incarnation that is zero is not asked about.
type Owner struct {
	Namespace string
	// Incarnation is the namespace's newest. Names of older ones pass: a transaction that was announced before a
	// backup was restored is committed after it.
	Incarnation uint64

	// Txn is a transaction by hand; pipeline, shard, member and generation are then unset.
	Txn string

	Pipeline   string
	Shard      uint32
	Member     string
	Generation uint64

	Resource string
}

// Foreign says what is wrong with a handle that names a branch of somebody else; "" if it names its owner's, or
// no branch at all. Which epoch it names is not asked: in Kafka's names a slot stands in its place. What is prepared by
// hand in Kafka has two names, that of its branch and that of a slot, which tells its process and no transaction; handles
// from before it had the first are judged by the second alone, of which that is the namespace.
func (o Owner) Foreign(handle string) string {
	branch, rest := handle, ""
	if i := strings.IndexAny(branch, "|#:/@"); i > 0 {
		branch, rest = branch[:i], branch[i:] // what follows tells one use of the name from the next
	}
	n, err := Parse(branch)
	if err != nil {
		return "" // a name that is no branch's is not ours to judge
	}
	part := o.differs(n)
	if part == "" && o.Txn != "" && !mutant.On("branchname/slot-is-judged") {
		part = o.differsInSlot(rest)
	}
	if part == "" {
		return ""
	}
	return fmt.Sprintf("the handle %s names another branch than its own: %s", handle, part)
}

// differsInSlot judges the slot that stands behind a branch's name, if one does.
func (o Owner) differsInSlot(rest string) string {
	after, found := strings.CutPrefix(rest, "|")
	if !found {
		return ""
	}
	slot, _, _ := strings.Cut(after, "|")
	n, err := Parse(slot)
	if err != nil || n.Txn != "" {
		return "" // three parts may be anything
	}
	return o.differs(n)
}

// differs names the first part that is another's; "" if all are the owner's.
func (o Owner) differs(n Name) string {
	not := func(what string, got, want any) string { return fmt.Sprintf("%s %v instead of %v", what, got, want) }
	newer := o.Incarnation != 0 && n.Incarnation > o.Incarnation
	byHand := n.Txn == "" && n.Pipeline == HandPipeline
	switch {
	case n.Namespace != o.Namespace || newer:
		return not("namespace", Namespace(n.Namespace, n.Incarnation), Namespace(o.Namespace, o.Incarnation))
	case o.Txn != "" && byHand:
		return ""
	case n.Txn != o.Txn:
		return o.kind(n)
	case o.Txn == "" && (n.Pipeline != o.Pipeline || n.Shard != o.Shard):
		return not("scope", fmt.Sprintf("%s/%d", n.Pipeline, n.Shard), fmt.Sprintf("%s/%d", o.Pipeline, o.Shard))
	case o.Txn == "" && n.Member != o.Member:
		return not("member", n.Member, o.Member)
	case o.Generation != 0 && n.Generation != o.Generation:
		return not("generation", n.Generation, o.Generation)
	case o.Resource != "" && n.Resource != o.Resource:
		return not("resource", n.Resource, o.Resource)
	}
	return ""
}

// kind compares transactions of which one at least is run by hand.
func (o Owner) kind(n Name) string {
	of := func(txn, pipeline string, shard uint32) string {
		if txn != "" {
			return "transaction " + txn
		}
		return fmt.Sprintf("scope %s/%d", pipeline, shard)
	}
	return of(n.Txn, n.Pipeline, n.Shard) + " instead of " + of(o.Txn, o.Pipeline, o.Shard)
}
