package processor

import (
	"flag"
	"go/parser"
	"go/token"
	"go/types"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	propertyTrials = flag.Uint64("property.trials", 2000, "how many random lives of pipelines to go through")
	propertyTime   = flag.Duration("property.time", 0, "go through random lives for that long instead")
	propertySeed   = flag.Uint64("property.seed", 0, "go through the life of this seed only")
)

// trialLength is how many lines a random script has.
const trialLength = 80

// TestE7_P17_EveryRecordIsOnceWhateverHappens takes random lives through the pipeline and a naive model, and
// compares everything that can be seen. It prints the seed of what fails, and a script as small as it gets.
func TestEveryRecordIsOnceWhateverHappens(t *testing.T) {
	if *propertySeed != 0 {
		try(t, *propertySeed)
		return
	}
	trials := *propertyTrials
	if testing.Short() {
		trials /= 20 // in one goroutine
	}
	base, began := uint64(time.Now().UnixNano()), time.Now()
	n := uint64(0)
	for ; *propertyTime > 0 && time.Since(began) < *propertyTime || *propertyTime == 0 && n < trials; n++ {
		if !try(t, base+n) {
			return
		}
	}
	t.Logf("%d lives from seed %d on", n, base)
}

// TestLivesAreFull: everything that can become of a record, and of a process, does so often in random lives.
func TestLivesAreFull(t *testing.T) {
	seen := map[string]int{}
	lives := 300
	if testing.Short() {
		lives = 60 // in one goroutine
	}
	for seed := range uint64(lives) {
		l, err := lived(someTrial(seed, trialLength), sabotage{})
		if err != nil {
			t.Fatalf("-property.seed=%d: %v", seed, err)
		}
		for what, n := range l.seen {
			seen[what] += n
		}
	}
	for _, what := range []string{
		"windowed", "late", "filtered", "skipped", "dead", "updates", "stopped by a bad record",
		"decided", "restarts", "restarts from a store", "epochs voted for, and lost",
	} {
		if seen[what] < lives/3 {
			t.Errorf("%q: %d times only in %d lives", what, seen[what], lives)
		}
	}
	t.Log(seen)
}

// FuzzLives lets the fuzzer choose what happens.
func FuzzLives(f *testing.F) {
	for seed := range uint64(20) {
		b := make([]byte, 400)
		r := rand.NewPCG(seed, 0)
		for i := range b {
			b[i] = byte(r.Uint64())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		c := choices
		tr := chosenTrial(rand.New((*listed)(&c)), min(200, len(choices)/4))
		if err := live(tr, sabotage{}); err != nil {
			small := shrink(tr, func(next trial) bool { return live(next, sabotage{}) != nil })
			t.Fatalf("%v\n\nshrunk to\n%s\n%v", err, small, live(small, sabotage{}))
		}
	})
}

// listed draws from a list, byte by byte, and the least number at its end. That is not 0, which rand draws
// again for ever when it wants one of a number of things that is no power of two.
type listed []byte

func (l *listed) Uint64() uint64 {
	if len(*l) == 0 {
		return 0x0101010101010101
	}
	b := (*l)[0]
	*l = (*l)[1:]
	return uint64(b) * 0x0101010101010101
}

func try(t *testing.T, seed uint64) bool {
	t.Helper()
	tr := someTrial(seed, trialLength)
	err := live(tr, sabotage{})
	if err == nil {
		return true
	}
	small := shrink(tr, func(next trial) bool { return live(next, sabotage{}) != nil })
	t.Errorf("seed %d (-property.seed=%d): %v\n\nshrunk to\n%s\n%v", seed, seed, err, small, live(small, sabotage{}))
	return false
}

// TestLivesThatOnceWentWrong goes through the scripts in testdata/property: what was found, by this test or
// in thought, shrunk.
func TestLivesThatOnceWentWrong(t *testing.T) {
	files, err := filepath.Glob("testdata/property/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := readTrial(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if err := live(tr, sabotage{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestScriptsReadAsTheyAreWritten: what a failure prints can be put into a file and run.
func TestScriptsReadAsTheyAreWritten(t *testing.T) {
	for seed := range uint64(50) {
		text := someTrial(seed, trialLength).String()
		tr, err := readTrial(text)
		if err != nil || tr.String() != text {
			t.Fatalf("seed %d: %v\n%s\nread as\n%s", seed, err, text, tr)
		}
	}
}

// TestTheModelStandsAlone: the model may not share a mistake with what it judges.
func TestTheModelStandsAlone(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "property_model_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"setup": true}
	for _, i := range f.Imports {
		if strings.Contains(i.Path.Value, ".") {
			t.Errorf("it imports %s", i.Path.Value)
		}
		known[strings.Trim(filepath.Base(i.Path.Value), `"`)] = true
	}
	for _, x := range f.Unresolved {
		if !known[x.Name] && types.Universe.Lookup(x.Name) == nil {
			t.Errorf("it uses %s, which is of this package", x.Name)
		}
	}
	if len(f.Decls) == 0 || len(f.Unresolved) == 0 {
		t.Error("nothing was looked at")
	}
}
