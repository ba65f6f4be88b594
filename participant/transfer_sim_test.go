package participant_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/stream"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// A hundred and twenty-eight clients move money between four accounts, two in memory and two in
// directories, by transactions run by hand. Clients are killed at any step, leaders are killed while
// calls are on their way, and a sweep goes about that takes slow clients for dead ones. At the end
// the sum is what it was, nothing is left prepared, and nobody was told two verdicts of one transaction.
// With -short there are 32: under the race detector each takes a tenth of a second.
func TestO4_O5_L1_MoneyMovedByHandIsNeitherMadeNorLost(t *testing.T) {
	for i := range max(1, howMany()/12) {
		s := uint64(i + 1)
		if *seed != 0 {
			s = *seed
		}
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) { bubble(t, func(t *testing.T) { moveMoney(t, s) }) })
		if *seed != 0 {
			return
		}
	}
}

const (
	movesOfEach  = 4
	accountsRoot = "/accounts"
)

// movers is how many clients there are.
func movers() int {
	if testing.Short() {
		return 32
	}
	return 128
}

// killedMidway is how many of their lives must end between prepare and the decision's answer, for a run to count.
func killedMidway() int {
	if testing.Short() {
		return 8 // twenty seeds had 15 to 31
	}
	return 50
}

// bank is the four accounts and what has been told about them.
type bank struct {
	t       *testing.T
	cluster *coordinatortest.Cluster
	stores  map[string]*participanttest.Store
	disks   map[string]*crashfs.Mem

	mu    sync.Mutex // guards the rest
	told  map[string]map[participant.Outcome]int
	hours map[string]int
	odd   []string // what nobody should have been told
}

func accounts() []string { return []string{"gold", "silver", "paper", "steel"} }

func newBank(t *testing.T) *bank {
	b := &bank{
		t: t, cluster: coordinatortest.Start(t, 3), told: map[string]map[participant.Outcome]int{}, hours: map[string]int{},
		stores: map[string]*participanttest.Store{}, disks: map[string]*crashfs.Mem{},
	}
	for _, name := range accounts() {
		if name == "gold" || name == "silver" {
			b.stores[name] = participanttest.NewStore(name)
		} else {
			b.disks[name] = crashfs.NewMem(accountsRoot)
		}
	}
	return b
}

// resources is a process's access to all accounts.
func (b *bank) resources(p *mortal) map[string]participant.Resource {
	out := map[string]participant.Resource{}
	for _, name := range accounts() {
		if s := b.stores[name]; s != nil {
			out[name] = p.memory(s)
			continue
		}
		sink, err := file.NewSink(file.SinkConfig{Dir: path.Join(accountsRoot, name), FS: mortalFS{b.disks[name], p}})
		if err != nil {
			b.t.Error(err)
		}
		out[name] = sink
	}
	return out
}

func (b *bank) hear(txn string, out participant.Outcome) {
	if out != participant.OutcomeCommitted && out != participant.OutcomeAborted {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told[txn] == nil {
		b.told[txn] = map[participant.Outcome]int{}
	}
	b.told[txn][out]++
}

func (b *bank) strange(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.odd = append(b.odd, fmt.Sprintf(format, args...))
}

// mover is one client over all its lives.
type mover struct {
	b    *bank
	name string
	rnd  *rand.Rand
}

func (m *mover) run(ctx context.Context) {
	for range movesOfEach {
		time.Sleep(time.Duration(m.rnd.IntN(3000)) * time.Millisecond)
		txn, err := participant.NewTxnID()
		if err != nil {
			m.b.t.Error(err)
			return
		}
		from := m.rnd.IntN(4)
		move := transfer{txn: txn, from: accounts()[from], to: accounts()[(from+1+m.rnd.IntN(3))%4], amount: 1 + m.rnd.IntN(100)}
		steps, fuse := 0, 0
		switch m.rnd.IntN(3) {
		case 0:
			steps = 15 + m.rnd.IntN(90) // anywhere
		case 1:
			fuse = 1 + m.rnd.IntN(8) // soon after both branches are prepared
		}
		p := m.life(ctx, steps, func(p *mortal, c *participant.Client) {
			if id, ok := m.draws(p, c); ok {
				move.txn = id
			}
			p.fuse = fuse
			m.transfer(p, c, move)
		})
		m.b.mu.Lock()
		m.b.hours[p.hour()]++
		m.b.mu.Unlock()
		if p.hour() == "lived" {
			continue
		}
		switch m.rnd.IntN(4) { // its supervisor starts it again, and it remembers the id
		case 0:
			m.life(ctx, 0, func(p *mortal, c *participant.Client) {
				if out, err := c.Outcome(p.ctx, move.txn); err == nil {
					m.b.hear(move.txn, out)
				}
			})
		case 1:
			m.life(ctx, 0, func(p *mortal, c *participant.Client) { m.transfer(p, c, move) })
		}
	}
}

// draws has every other client draw its id itself, after a transaction of nothing: of such an id nobody is asked
// before the branches are prepared.
func (m *mover) draws(p *mortal, c *participant.Client) (string, bool) {
	if m.rnd.IntN(2) == 0 {
		return "", false
	}
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	first, err := c.NewTxnID()
	if err != nil {
		return "", false
	}
	if _, err := c.RunTxn(ctx, first, nil); err != nil {
		return "", false
	}
	id, err := c.NewTxnID()
	return id, err == nil
}

// life is one process of the client, which dies at a step or ends by itself.
func (m *mover) life(ctx context.Context, steps int, work func(*mortal, *participant.Client)) *mortal {
	p := newMortal(ctx, m.rnd.Uint64(), steps)
	c, err := participant.NewClient(participant.ClientConfig{
		Coordinators: m.b.cluster.Addresses(), Dial: p.network(m.b.cluster.Dial), Actor: m.name, Patience: 20 * time.Second,
	})
	if err != nil {
		m.b.t.Error(err)
		return p
	}
	work(p, c)
	if err := c.Close(); err != nil && p.hour() == "lived" {
		m.b.t.Error(err)
	}
	p.cancel()
	return p
}

type transfer struct {
	txn, from, to string
	amount        int
}

// transfer runs one transaction as far as the process lives.
func (m *mover) transfer(p *mortal, c *participant.Client, move transfer) {
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	all := m.b.resources(p)
	mine := map[string]participant.Resource{move.from: all[move.from], move.to: all[move.to]}
	if c.Open(ctx, m.name, mine) != nil {
		return
	}
	ns, err := c.Namespace(ctx)
	if err != nil {
		return
	}
	if m.rnd.IntN(3) == 0 {
		if _, err := c.Begin(ctx, move.txn, []string{move.from, move.to}, time.Duration(1+m.rnd.IntN(20))*time.Second); err != nil {
			return
		}
	}
	var branches []participant.TxnBranch
	for name, delta := range map[string]int{move.from: -move.amount, move.to: move.amount} {
		br, err := mine[name].Begin(ctx, participant.BranchName{Namespace: ns, Txn: move.txn, Resource: name})
		if err != nil {
			return
		}
		if err := writeLine(ctx, br, fmt.Sprintf("%s %+d", move.txn, delta)); err != nil && !errors.Is(err, participant.ErrBug) {
			return
		}
		branches = append(branches, participant.TxnBranch{Name: name, Resource: watched{mine[name], p}, Branch: watchedBranch{br, p}})
	}
	for range 3 {
		out, err := c.RunTxn(ctx, move.txn, branches)
		m.b.hear(move.txn, out)
		if errors.Is(err, participant.ErrHeuristic) {
			m.b.strange("%s: heuristic: %v", move.txn, err)
		}
		if !errors.Is(err, participant.ErrOutcomeUnknown) || p.hour() != "lived" {
			return
		}
	}
}

func writeLine(ctx context.Context, b participant.Branch, line string) error {
	if m, ok := b.(*participanttest.MemoryBranch); ok {
		return m.Write(line)
	}
	return b.(processor.Writer).Write(ctx, []stream.Record{{Value: []byte(line)}})
}

func moveMoney(t *testing.T, seed uint64) {
	b := newBank(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	var clients, others sync.WaitGroup
	for i := range movers() {
		m := &mover{b: b, name: fmt.Sprintf("client-%d", i), rnd: rand.New(rand.NewPCG(seed, uint64(100+i)))}
		clients.Go(func() { m.run(t.Context()) })
	}
	calm, stop := context.WithCancel(t.Context())
	var kills atomic.Int32
	others.Go(func() {
		for calm.Err() == nil {
			time.Sleep(time.Duration(300+rnd.IntN(1000)) * time.Millisecond)
			leader := b.cluster.Leader()
			b.cluster.Crash(leader)
			kills.Add(1)
			time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			b.cluster.Restart(leader)
		}
	})
	sweeper := b.cluster.Client()
	others.Go(func() {
		for calm.Err() == nil {
			// Faults end a sweep half-way; what counts is what it did, and that the last one has none.
			_, _ = sweeper.Sweep(calm, b.resources(newMortal(calm, seed, 0)), 20*time.Millisecond)
			time.Sleep(300 * time.Millisecond)
		}
	})
	clients.Wait()
	stop()
	others.Wait()
	t.Logf("%d leaders killed; clients: %v", kills.Load(), b.hours)
	time.Sleep(25 * time.Second) // the longest deadline passes
	b.settle(sweeper)
	b.audit(sweeper)
	if t.Failed() {
		t.Logf("replay: go test ./participant -run MoneyMovedByHand -seed %d", seed)
	}
	if n := b.hours["killed between prepare and the decision's answer"]; n < killedMidway() || kills.Load() < 3 {
		t.Errorf("only %d clients were killed between prepare and the decision's answer, and %d leaders: this run has shown too little", n, kills.Load())
	}
}

// settle sweeps until nothing is left, as whoever runs such clients does now and then.
func (b *bank) settle(c *participant.Client) {
	b.t.Helper()
	for range 3 {
		done, err := c.Sweep(b.t.Context(), b.resources(newMortal(b.t.Context(), 7, 0)), 0)
		if err != nil {
			b.t.Fatalf("sweep of a calm group: %v", err)
		}
		for _, txn := range done.Aborted {
			b.hear(txn, participant.OutcomeAborted)
		}
		b.t.Logf("swept: %d committed, %d rolled back, %d aborted as unknown, %d undecided", done.Committed, done.RolledBack, len(done.Aborted), done.Undecided)
	}
	list, err := c.Transactions().ListTransactions(b.t.Context(), &unisinkv1.ListTransactionsRequest{InDoubt: true})
	if err != nil {
		b.t.Fatal(err)
	}
	if len(list.GetTransactions()) > 0 {
		b.t.Errorf("%d transactions are still in doubt, the first is %v", len(list.GetTransactions()), list.GetTransactions()[0])
	}
	b.cluster.AssertSameState()
}

// visible are the amounts that readers see, by transaction and account.
func (b *bank) visible() map[string]map[string]int {
	b.t.Helper()
	seen := map[string]map[string]int{}
	add := func(account, line string) {
		txn, text, _ := strings.Cut(line, " ")
		amount, err := strconv.Atoi(text)
		if err != nil {
			b.t.Fatalf("%s holds %q: %v", account, line, err)
		}
		if seen[txn] == nil {
			seen[txn] = map[string]int{}
		}
		if seen[txn][account] != 0 {
			b.t.Errorf("%s shows transaction %s twice", account, txn)
		}
		seen[txn][account] += amount
	}
	for account, s := range b.stores {
		for _, line := range s.Records() {
			add(account, line)
		}
		want(b.t, "prepared in "+account, s.Prepared(), nil)
	}
	for account, disk := range b.disks {
		dir := path.Join(accountsRoot, account)
		manifests, err := file.ReadManifests(disk, dir)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, m := range manifests {
			for _, f := range m.Files {
				text, err := crashfs.ReadFile(disk, path.Join(dir, f.Name))
				if err != nil {
					b.t.Fatal(err)
				}
				for _, line := range strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(text)), " ", "\x00")) {
					add(account, strings.ReplaceAll(line, "\x00", " "))
				}
			}
		}
		staged, err := disk.ReadDir(path.Join(dir, ".unisink", "staged"))
		if err != nil || len(staged) > 0 {
			b.t.Errorf("%s: %d branches are still staged, %v", account, len(staged), err)
		}
	}
	return seen
}

// audit compares what is visible with what was told, and with what the ledger says.
func (b *bank) audit(c *participant.Client) {
	b.t.Helper()
	seen := b.visible()
	total := 0
	for txn, amounts := range seen {
		sum := 0
		for _, a := range amounts {
			sum += a
		}
		total += sum
		if sum != 0 || len(amounts) != 2 {
			b.t.Errorf("transaction %s is torn: %v", txn, amounts)
		}
		if out, err := c.Outcome(b.t.Context(), txn); err != nil || out != participant.OutcomeCommitted {
			b.t.Errorf("transaction %s is visible, and its outcome is %s, %v", txn, out, err)
		}
	}
	if total != 0 {
		b.t.Errorf("the accounts sum up to %d, not to 0", total)
	}
	committed := 0
	for txn, told := range b.told {
		if len(told) != 1 {
			b.t.Errorf("transaction %s was told as %v", txn, told)
		}
		if told[participant.OutcomeCommitted] > 0 {
			committed++
		}
		if (told[participant.OutcomeCommitted] > 0) != (seen[txn] != nil) {
			b.t.Errorf("transaction %s was told as %v, and is visible as %v", txn, told, seen[txn])
		}
	}
	slices.Sort(b.odd)
	want(b.t, "told and should not have been", b.odd, nil)
	b.t.Logf("%d transactions are visible, %d of them somebody was told", len(seen), committed)
	if committed < movers() {
		b.t.Errorf("only %d transactions were told as committed: this run has shown too little", committed)
	}
}
