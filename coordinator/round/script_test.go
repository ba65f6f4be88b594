package round

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/unisink/unisink/coordinator/ledger"
)

// script runs the commands of a scenario against one machine after another.
//
//	new [solo] [decided] final=5 term=3 pending=2 interval=1s prepare=30s budget=10s members=src*,sink
//	at 1500ms                    time passes, no event
//	tick                         time is told
//	attach M [final] barrier=7 outcome=5 proven=5 votes=6:h6,7:-   ("-" is read-only)
//	detach M | work M [ended] | idle M [ended] | proven M N
//	vote M N yes|readonly|no|lost [final] [halt] [instance=…] handle=… pos=… proven=… left=R:20s,… stamp=TERM@1s reason=…
//	decided N [final] | failed N [unknown]
//	finish [drain] | close cause=… [halt=…] | closefailed | closed
//	show | wake
type script struct {
	m   *Machine
	now Time
	off guards
}

// words are a command's arguments: plain ones in order, and key=value.
type words struct {
	plain []string
	named map[string]string
}

func parse(fields []string) words {
	w := words{named: map[string]string{}}
	for _, f := range fields {
		if key, value, ok := strings.Cut(f, "="); ok {
			w.named[key] = strings.ReplaceAll(value, "_", " ")
		} else {
			w.plain = append(w.plain, f)
		}
	}
	return w
}

func (w words) has(flag string) bool {
	for _, p := range w.plain {
		if p == flag {
			return true
		}
	}
	return false
}

func (w words) arg(i int) string {
	if i < len(w.plain) {
		return w.plain[i]
	}
	return ""
}

func (w words) n(key string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(w.named[key], 10, 64); err == nil {
		return n
	}
	return otherwise
}

func (w words) d(key string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(w.named[key]); err == nil {
		return d
	}
	return otherwise
}

var errScript = errors.New("cannot follow the script")

// run does one line and returns what it printed.
func (s *script) run(line string) (string, error) {
	fields := strings.Fields(line)
	w := parse(fields[1:])
	if fields[0] == "new" {
		s.m = New(config(w), s.now)
		s.m.off = s.off
		return "", nil
	}
	if s.m == nil {
		return "", fmt.Errorf("%w: %q comes before new", errScript, line)
	}
	switch fields[0] {
	case "at":
		d, err := time.ParseDuration(w.arg(0))
		s.now = Time(d)
		return "", err
	case "show":
		return show(s.m), nil
	case "wake":
		if at, ok := s.m.NextWake(); ok {
			return fmt.Sprintf("wake at %s\n", time.Duration(at)), nil
		}
		return "no wake\n", nil
	}
	orders, err := s.event(fields[0], w)
	return text(orders), err
}

func (s *script) event(name string, w words) ([]Order, error) {
	m, now := s.m, s.now
	n, _ := strconv.ParseUint(w.arg(0), 10, 64)
	switch name {
	case "tick":
		return m.Tick(now), nil
	case "attach":
		st := Standing{
			NewestBarrier: w.n("barrier", 0), NewestFinal: w.has("final"),
			NewestOutcome: w.n("outcome", 0), ProvenThrough: w.n("proven", 0),
		}
		votes, err := standingVotes(w)
		st.Votes = votes
		return m.Attached(w.arg(0), st, now), err
	case "detach":
		return m.Detached(w.arg(0), now), nil
	case "work", "idle":
		return m.Work(w.arg(0), name == "work", w.has("ended"), now), nil
	case "vote":
		v, err := vote(w)
		instance := w.named["instance"]
		if instance == "" {
			instance = w.arg(0) + "-1"
		}
		return m.Vote(w.arg(0), instance, v, now), err
	case "proven":
		through, err := strconv.ParseUint(w.arg(1), 10, 64)
		return m.Proven(w.arg(0), through, now), err
	case "decided":
		return m.Decided(n, w.has("final"), now), nil
	case "failed":
		return m.ProposalFailed(n, w.has("unknown"), now), nil
	case "finish":
		return m.Finish(w.has("drain"), now), nil
	case "close":
		return m.Close(w.named["cause"], w.named["halt"], now), nil
	case "closefailed":
		return m.CloseFailed(now), nil
	case "closed":
		return m.Closed(now), nil
	}
	return nil, fmt.Errorf("%w: unknown command %q", errScript, name)
}

func config(w words) Config {
	c := Config{
		Scope: ledger.ScopeID{Pipeline: "orders"}, Generation: 7,
		Final: w.n("final", 0), FinalDecided: w.has("decided"),
		Interval: w.d("interval", time.Second), PrepareTimeout: w.d("prepare", 30*time.Second),
		CommitBudget: w.d("budget", 10*time.Second), MaxPending: int(w.n("pending", 2)),
		Solo: w.has("solo"), Term: w.n("term", 1),
	}
	for _, name := range strings.Split(w.named["members"], ",") {
		name, source := strings.CutSuffix(name, "*")
		c.Members = append(c.Members, Member{Name: name, Instance: name + "-1", Source: source})
	}
	return c
}

func standingVotes(w words) ([]Vote, error) {
	var votes []Vote
	if w.named["votes"] == "" {
		return nil, nil
	}
	for _, item := range strings.Split(w.named["votes"], ",") {
		n, handle, _ := strings.Cut(item, ":")
		fields := []string{w.arg(0), n, "yes", "handle=" + handle}
		if handle == "-" {
			fields = []string{w.arg(0), n, "readonly"}
		}
		if left := w.named["left"]; left != "" {
			fields = append(fields, "left="+left, "stamp="+w.named["stamp"])
		}
		if w.has("final") && n == w.named["barrier"] {
			fields = append(fields, "final")
		}
		v, err := vote(parse(fields))
		if err != nil {
			return nil, err
		}
		votes = append(votes, v)
	}
	return votes, nil
}

func vote(w words) (Vote, error) {
	n, err := strconv.ParseUint(w.arg(1), 10, 64)
	v := Vote{N: n, Final: w.has("final"), Halt: w.has("halt"), Reason: w.named["reason"]}
	switch w.arg(2) {
	case "yes":
		v.Kind = Yes
	case "readonly":
		v.Kind = ReadOnly
	case "no":
		v.Kind = No
	case "lost":
		v.Kind = Lost
	}
	v.Ledger.ProvenThrough = w.n("proven", 0)
	if h := w.named["handle"]; h != "" {
		v.Ledger.Branches = []ledger.Prepared{{Resource: "out", Handle: ledger.Handle{Name: h}}}
	}
	if pos := w.named["pos"]; pos != "" {
		v.Ledger.Positions = []ledger.Position{{Resource: "in", Split: "0", Offset: int64(w.n("pos", 0))}}
	}
	if left := w.named["left"]; left != "" {
		for _, item := range strings.Split(left, ",") {
			resource, d, _ := strings.Cut(item, ":")
			duration, e := time.ParseDuration(d)
			err = errors.Join(err, e)
			v.TimeLeft = append(v.TimeLeft, TimeLeft{Resource: resource, Left: duration})
		}
	}
	if stamp := w.named["stamp"]; stamp != "" {
		term, at, _ := strings.Cut(stamp, "@")
		number, e1 := strconv.ParseUint(term, 10, 64)
		clock, e2 := time.ParseDuration(at)
		err = errors.Join(err, e1, e2)
		v.Stamp = Stamp{Term: number, Clock: Time(clock)}
	}
	return v, err
}

// text shows orders for people.
func text(orders []Order) string {
	var b strings.Builder
	for _, o := range orders {
		switch o := o.(type) {
		case SendBarrier:
			fmt.Fprintf(&b, "barrier %d%s%s to %s\n", o.N, when(o.Final, " final"), when(o.Drain, " drain"), strings.Join(o.To, ", "))
		case ProposeDecide:
			fmt.Fprintf(&b, "propose %s%s\n", o.Decide.Epoch, when(o.Decide.Final, " final"))
			for _, v := range o.Decide.Votes {
				fmt.Fprintf(&b, "  %s", v.Member)
				for _, p := range v.Branches {
					fmt.Fprintf(&b, " %s=%s", p.Resource, p.Handle.Name)
				}
				for _, p := range v.Positions {
					fmt.Fprintf(&b, " %s/%s@%d", p.Resource, p.Split, p.Offset)
				}
				fmt.Fprintf(&b, " proven=%d\n", v.ProvenThrough)
			}
		case SendCommitted:
			fmt.Fprintf(&b, "committed %d%s to %s\n", o.N, when(o.Final, " final"), strings.Join(o.To, ", "))
		case ProposeClose:
			fmt.Fprintf(&b, "propose close: %s%s\n", o.Cause, when(o.Halt != "", "; halt: "+o.Halt))
		case VoteAgain:
			fmt.Fprintf(&b, "vote again %s\n", o.Member)
		case AllProven:
			fmt.Fprintf(&b, "all proven through %d\n", o.N)
		}
	}
	return b.String()
}

func when(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}

func show(m *Machine) string {
	var b strings.Builder
	n, last := m.Final()
	fmt.Fprintf(&b, "final %d%s, pending %d%s\n", n, when(last, " (last)"), m.Pending(), when(m.Closing() != "", ", closing"))
	for _, r := range m.Open() {
		fmt.Fprintf(&b, "open %d%s%s%s ordered %s, missing %s until %s\n", r.N, when(r.Final, " final"), when(r.Proposed, " proposed"),
			when(r.Doubtful, " doubtful"), time.Duration(r.OrderedAt), cmp.Or(list(r.Missing), "nobody"), time.Duration(r.Deadline))
	}
	return b.String()
}
