package branchname

import (
	"fmt"
	"strconv"
	"strings"
)

// HandPipeline stands in the place of a pipeline in what resources are opened for by hand. No pipeline can
// have this name: theirs begin with a letter or a digit.
const HandPipeline = "_hand"

// Name is a branch's name in its parts; participant.BranchName says what they are.
type Name struct {
	Namespace     string
	Incarnation   uint64 // from 1
	Pipeline      string
	Shard         uint32
	Member        string
	Resource      string
	Generation, N uint64
	Txn           string // set for transactions by hand, whose names have namespace, transaction and resource alone
}

// String is "ns.pipeline.shard.member.resource.generation.n", or "ns.txn.resource" by hand.
func (n Name) String() string {
	ns := Namespace(n.Namespace, n.Incarnation)
	if n.Txn != "" {
		return ns + "." + n.Txn + "." + n.Resource
	}
	return fmt.Sprintf("%s.%s.%d.%s.%s.%d.%d", ns, n.Pipeline, n.Shard, n.Member, n.Resource, n.Generation, n.N)
}

// Namespace is "name" for the first incarnation and "name~2" for later ones.
func Namespace(name string, incarnation uint64) string {
	if incarnation <= 1 {
		return name
	}
	return name + "~" + strconv.FormatUint(incarnation, 10)
}

// Parse reads what String writes.
func Parse(s string) (Name, error) {
	bad := func() (Name, error) {
		return Name{}, fmt.Errorf("%q is no branch name; one looks like ns.pipeline.0.member.resource.7.12 or ns.txn.resource", s)
	}
	p := strings.Split(s, ".")
	if len(p) != 7 && len(p) != 3 {
		return bad()
	}
	for _, part := range p {
		if part == "" {
			return bad()
		}
	}
	ns, inc, err := ParseNamespace(p[0])
	if err != nil {
		return bad()
	}
	if len(p) == 3 {
		return Name{Namespace: ns, Incarnation: inc, Txn: p[1], Resource: p[2]}, nil
	}
	shard, err1 := strconv.ParseUint(p[2], 10, 32)
	gen, err2 := strconv.ParseUint(p[5], 10, 64)
	n, err3 := strconv.ParseUint(p[6], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return bad()
	}
	b := Name{Namespace: ns, Incarnation: inc, Pipeline: p[1], Shard: uint32(shard), Member: p[3], Resource: p[4], Generation: gen, N: n}
	if b.String() != s {
		return bad()
	}
	return b, nil
}

// ParseNamespace reads "name" or "name~2".
func ParseNamespace(s string) (name string, incarnation uint64, err error) {
	name, inc, found := strings.Cut(s, "~")
	if name == "" {
		return "", 0, fmt.Errorf("%q is no namespace", s)
	}
	if !found {
		return name, 1, nil
	}
	n, err := strconv.ParseUint(inc, 10, 64)
	if err != nil || n < 2 {
		return "", 0, fmt.Errorf("%q is no namespace: the incarnation after '~' is a number from 2", s)
	}
	if Namespace(name, n) != s {
		return "", 0, fmt.Errorf("%q is no namespace: write the incarnation as %d", s, n)
	}
	return name, n, nil
}
