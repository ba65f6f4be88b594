package pairs

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const saidByPgbench = `pgbench (15.19 (Debian 15.19-0+deb12u1), server 18.1)
transaction type: pairs.sql
scaling factor: 1
query mode: simple
number of clients: 16
number of threads: 2
maximum number of tries: 1
duration: 5 s
number of transactions actually processed: 2044
number of failed transactions: 0 (0.000%)
latency average = 39.150 ms
initial connection time = 31.207 ms
tps = 408.683510 (without initial connection time)
`

func TestWhatPgbenchSaysIsRead(t *testing.T) {
	got, err := readPgbench(saidByPgbench)
	if err != nil || got.done != 2044 || got.perS != 408.683510 || got.mean != 39.150 {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestPgbenchThatMadeNothingOrFailedIsAnError(t *testing.T) {
	for name, said := range map[string]string{
		"silent":  "",
		"older":   strings.Replace(saidByPgbench, "without initial connection time", "excluding connections establishing", 1),
		"failed":  strings.Replace(saidByPgbench, "failed transactions: 0", "failed transactions: 3", 1),
		"nothing": strings.Replace(saidByPgbench, "processed: 2044", "processed: 0", 1),
	} {
		if got, err := readPgbench(said); err == nil {
			t.Errorf("%s: read %+v", name, got)
		}
	}
}

func TestWithoutPgbenchOneSentenceSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := findIn("pgbench", filepath.Join(t.TempDir(), "*", "pgbench"))
	if err == nil || !strings.Contains(err.Error(), "install it") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestEveryMistakeIsNamedAtOnce(t *testing.T) {
	err := Config{Nodes: 2, Clients: []int{0}, Duration: 1500 * time.Millisecond}.Validate()
	for _, part := range []string{"2 nodes", "clients [0]", "1.5s", "0 passes"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
	if err := (Config{Nodes: 1, Clients: []int{1, 16}, Duration: time.Second, Passes: 1}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestARowHoldsMediansAndIsHeldAgainstItsBudget(t *testing.T) {
	l := &lab{c: Config{Limit: 0.7}}
	bare := []pass{{perS: 100}, {perS: 300}, {perS: 200}}
	for i := range bare {
		bare[i].cost = Cost{Client: float64(i), Nodes: 1, Postgres: 2, WAL: 3, Entries: 4}
	}
	r := l.row(4, []pass{{perS: 90}, {perS: 110}, {perS: 140}}, bare)
	if r.BareCost != (Cost{1, 1, 2, 3, 4}) || r.Cost != (Cost{}) {
		t.Errorf("got %+v and %+v", r.BareCost, r.Cost)
	}
	if r.PerS != 110 || r.BarePerS != 200 || r.Ratio != 0.55 || len(r.Ratios) != 3 || r.Ratios[0] != 0.9 || r.Budgets[0].OK {
		t.Errorf("got %+v", r)
	}
	if r := l.row(4, []pass{{perS: 150}, {perS: 150}, {perS: 150}}, bare); !r.Budgets[0].OK {
		t.Errorf("got %+v", r)
	}
}

func TestWhatWasUsedIsSharedAmongTheTransactions(t *testing.T) {
	began, ended := used{time.Second, 2 * time.Second, 3 * time.Second, 100, 10}, used{2 * time.Second, 4 * time.Second, 6 * time.Second, 2100, 510}
	p := pass{done: 1000, client: 500 * time.Millisecond}
	if got := ended.since(began).per(p, false); got != (Cost{1, 2, 3, 2, 0.5}) {
		t.Errorf("ours: %+v", got)
	}
	if got := ended.since(began).per(p, true); got != (Cost{0.5, 2, 3, 2, 0.5}) {
		t.Errorf("pgbench: %+v", got)
	}
}

func TestWhatIsComparedIsSaid(t *testing.T) {
	if got := sides(3); !strings.Contains(got.Unisink, "of 3 nodes") || !strings.Contains(got.Pgbench, "no fence, no marker, no decision") {
		t.Errorf("said %+v", got)
	}
}
