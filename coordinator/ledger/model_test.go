package ledger

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The model in spec/ is of use only if the machine does what it says. Random lives of the machine are
// written down as commands of the model, each with the answer that the machine gave, and the model must
// give the same. `make spec` sets UNISINK_SPEC; without it, spin may not be there.
func TestModelAcceptsTheMachine(t *testing.T) {
	if os.Getenv("UNISINK_SPEC") == "" {
		t.Skip("UNISINK_SPEC is not set: run `make spec`, which needs spin")
	}
	lives := make([]string, 300)
	refused := 0
	for i := range lives {
		l := newLife(uint64(i))
		l.live(40)
		refused += l.refused
		lives[i] = l.out.String()
	}
	if refused < len(lives) {
		t.Fatalf("only %d refusals in %d lives: they show too little", refused, len(lives))
	}
	if out, err := accept(t, lives); err != nil || strings.Contains(out, "assertion violated") {
		t.Fatalf("the model does not accept the machine: %v\n%s\n%s", err, out, lives[0])
	}
	// And it would have said so: one answer is turned round.
	lives[0] = strings.Replace(lives[0], "assert(ok)", "assert(!ok)", 1)
	if out, _ := accept(t, lives[:1]); !strings.Contains(out, "assertion violated") {
		t.Fatalf("the model accepts an answer that the machine never gave\n%s", out)
	}
}

// accept runs lives through the model, each from the beginning.
func accept(t *testing.T, lives []string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	model, err := os.ReadFile(filepath.Join("spec", "ledger.pml"))
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for i, l := range lives {
		text := "#define GENERATIONS 4\n#define EPOCHS 3\n" + string(model) + "init {\n\td_step {\n" + l + "\t}\n}\n"
		name := filepath.Join(dir, fmt.Sprintf("life-%d.pml", i))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("spin", "-B", name).CombinedOutput()
		said.Write(out)
		if err != nil {
			return said.String(), err
		}
	}
	return said.String(), nil
}

const modelGenerations, modelEpochs = 4, 3

// life is one random run of the machine, as text of the model.
type life struct {
	m       *Machine
	r       *rand.Rand
	at      int64
	out     strings.Builder
	line    []Epoch // the decided epochs that the restore point follows from, oldest first
	refused int
}

func newLife(seed uint64) *life {
	l := &life{m: New(), r: rand.New(rand.NewPCG(seed, 1)), at: 1000}
	p := twoMembers("p")
	p.Settings.RestorePoints = 16
	l.m.Apply(Command{At: l.at, Body: Init{Namespace: "test", Incarnation: 1}})
	l.m.Apply(Command{At: l.at, Body: PutPipeline{Pipeline: p}})
	return l
}

// say applies a command and writes what the model must answer.
func (l *life) say(b Body, format string, args ...any) Result {
	l.at += 3_600_000 // no generation is too young for the next
	r, _ := l.m.Apply(Command{At: l.at, Actor: "test", Body: b})
	answer := "ok"
	if !r.OK() {
		answer = "!ok"
		l.refused++
	}
	fmt.Fprintf(&l.out, "\t\t"+format+"; assert(%s);\n", append(args, answer)...)
	return r
}

func (l *life) live(steps int) {
	for range steps {
		newest := l.m.newestGeneration(theScope)
		g := Generation(1 + l.r.IntN(modelGenerations))
		if l.r.IntN(3) > 0 && newest > 0 {
			g = newest
		}
		e := Epoch{g, uint64(1 + l.r.IntN(modelEpochs))}
		switch l.r.IntN(8) {
		case 0, 1:
			l.open(newest)
		case 2:
			if l.r.IntN(2) == 0 {
				l.say(CloseGeneration{Scope: theScope, Generation: g, Cause: "test"}, "close_generation(%d)", g)
			}
		case 3, 4, 5:
			l.decide(newest, e)
		case 6:
			if e.Generation <= newest && l.m.EpochOutcome(theScope, e) != Committed {
				continue // "committed though aborted" halts the scope; broken promises are not in the model
			}
			l.say(proving("p", e, "a", "out", ProvenCommitted), "resolve(0, %d, %d)", e.Generation, e.N)
		default:
			l.rewind()
		}
	}
}

func (l *life) open(newest Generation) {
	from := newest
	if l.r.IntN(4) == 0 {
		from = Generation(l.r.IntN(modelGenerations))
	}
	if newest == modelGenerations {
		return // the model ends here
	}
	l.say(opening("p", from, fmt.Sprint(newest+1)), "open_generation(%d, 0)", from)
}

func (l *life) decide(newest Generation, e Epoch) {
	if e.Generation > newest {
		return // nobody can have voted
	}
	fmt.Fprintf(&l.out, "\t\tvote[V(0, E(%d, %d))] = 1; vote[V(1, E(%d, %d))] = 1;\n", e.Generation, e.N, e.Generation, e.N)
	before := l.m.EpochOutcome(theScope, e)
	if before == Committed {
		return // a repeat is answered as applied; the model has no need of it
	}
	if r := l.say(deciding("p", e, fmt.Sprint(e.Generation), 0), "decide(%d, %d)", e.Generation, e.N); r.OK() {
		l.line = append(l.line, e)
	}
}

func (l *life) rewind() {
	if len(l.line) < 2 {
		return // nothing before it is kept
	}
	to := l.line[len(l.line)-2]
	r := l.say(Rewind{Scope: theScope, To: to, Why: "test"}, "rewind()")
	if r.OK() {
		l.line = l.line[:len(l.line)-1]
	}
}

func (m *Machine) newestGeneration(id ScopeID) Generation {
	if sc := m.scopes[id]; sc != nil {
		if g := sc.newest(); g != nil {
			return g.Generation
		}
	}
	return 0
}
