package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

const (
	pipelineName = "three"
	testEpoch    = 100 * time.Millisecond
	testRate     = 5000
	// patience is for what takes a second or two on an idle machine.
	patience = 30 * time.Second
)

// node is one coordinator node.
type node struct {
	id, client, raft string
	*child.Process
}

// worker is one member of the pipeline under its supervisor.
type worker struct {
	name string
	args []string

	mu     sync.Mutex // guards the rest
	now    *child.Process
	starts int
	over   bool // ended without an error: the pipeline was stopped
}

// system is three nodes, three members, and what they write.
type system struct {
	crew     *child.Crew
	dir, out string
	stage    string
	server   string
	nodes    []*node
	workers  map[string]*worker
	client   *participant.Client
	quit     chan struct{} // closed: supervisors start nothing any more
	group    sync.WaitGroup
}

// newSystem starts everything and waits until epochs are decided. It ends with the test.
func newSystem(t *testing.T, lease time.Duration) *system {
	t.Helper()
	if testing.Short() {
		t.Skip("starts six processes")
	}
	s := &system{crew: child.New(), dir: t.TempDir(), workers: map[string]*worker{}, quit: make(chan struct{})}
	s.stage, s.server = build(t)
	s.out = filepath.Join(s.dir, "out")
	t.Cleanup(func() { s.end(t) })
	s.startNodes(t)
	if err := run(t.Context(), []string{"declare", "--coordinator", s.coordinators(), "--epoch", testEpoch.String(), "--lease", lease.String()}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	windowAt, sinkAt := freeAddress(t), freeAddress(t)
	s.workers = map[string]*worker{
		memberSource: {name: memberSource, args: []string{"--to", windowAt, "--rate", fmt.Sprint(testRate)}},
		memberWindow: {name: memberWindow, args: []string{"--listen", windowAt, "--to", sinkAt}},
		memberSink:   {name: memberSink, args: []string{"--listen", sinkAt, "--dir", s.out}},
	}
	s.startWorkers()
	s.awaitProgress(t, 0)
	return s
}

func (s *system) startNodes(t *testing.T) {
	t.Helper()
	var addresses []string
	for i := range 3 {
		n := &node{id: fmt.Sprintf("n%d", i+1), client: freeAddress(t), raft: freeAddress(t)}
		s.nodes = append(s.nodes, n)
		addresses = append(addresses, n.client)
		s.startNode(t, n)
	}
	for _, n := range s.nodes {
		eventually(t, patience, "node "+n.id+" to listen", func() bool {
			conn, err := net.Dial("tcp", n.client)
			return err == nil && conn.Close() == nil
		})
	}
	s.client = newClient(t, addresses...)
	req := &unisinkv1.BootstrapRequest{Namespace: "example"}
	for _, n := range s.nodes {
		req.Nodes = append(req.Nodes, &unisinkv1.Node{Id: n.id, RaftAddress: n.raft, ClientAddress: n.client, Voter: true})
	}
	first := newClient(t, s.nodes[0].client)
	req.Meta = first.NewMeta()
	if _, err := first.Cluster().Bootstrap(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

func (s *system) startNode(t *testing.T, n *node) {
	t.Helper()
	p, err := s.crew.Start(child.Spec{Name: n.id, Log: s.log(n.id), Path: s.server, Args: []string{
		"serve", "--node", n.id, "--data", filepath.Join(s.dir, n.id),
		"--client", n.client, "--raft", n.raft, "--log-level", "debug", "--log-format", "json",
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.Process = p
}

func (s *system) log(name string) string { return filepath.Join(s.dir, name+".log") }

func (s *system) coordinators() string {
	var all []string
	for _, n := range s.nodes {
		all = append(all, n.client)
	}
	return strings.Join(all, ",")
}

// startWorkers lets every member run under a supervisor, which starts it again whenever it ends
// otherwise than by being stopped.
func (s *system) startWorkers() {
	for _, w := range s.workers {
		w.over = false
		s.group.Go(func() { s.supervise(w) })
	}
}

func (s *system) supervise(w *worker) {
	for {
		p, err := s.crew.Start(child.Spec{
			Name: w.name, Log: s.log(w.name), Path: s.stage,
			Args: append([]string{w.name, "-v", "--coordinator", s.coordinators()}, w.args...),
		})
		if err != nil {
			return // the test has ended; else it is seen as a member that never comes
		}
		w.mu.Lock()
		w.now = p
		w.starts++
		w.mu.Unlock()
		select {
		case <-p.Done():
		case <-s.quit:
			return
		}
		if p.Err() == nil {
			w.mu.Lock()
			w.over = true
			w.mu.Unlock()
			return
		}
		select {
		case <-s.quit:
			return
		case <-time.After(100 * time.Millisecond): // a supervisor's breath
		}
	}
}

// process is the member's present process.
func (w *worker) process() *child.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *worker) started() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}

// starts counts the starts of every member but one.
func (s *system) starts(but string) map[string]int {
	out := map[string]int{}
	for name, w := range s.workers {
		if name != but {
			out[name] = w.started()
		}
	}
	return out
}

// end kills what is left, and shows the logs of a test that failed.
func (s *system) end(t *testing.T) {
	close(s.quit)
	s.group.Wait()
	if err := s.crew.End(); err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		return
	}
	for _, name := range []string{"n1", "n2", "n3", memberSource, memberWindow, memberSink} {
		text, _ := os.ReadFile(s.log(name)) // one that is missing has nothing to tell
		lines := slices.DeleteFunc(bytes.Split(text, []byte("\n")), func(l []byte) bool { return bytes.Contains(l, []byte(`"msg":"sent"`)) })
		for _, l := range lines[max(0, len(lines)-25):] {
			t.Logf("%s: %s", name, l)
		}
	}
}

// scope is the pipeline's one scope as the coordinator sees it; nil when nobody answers.
func (s *system) scope(t *testing.T) *unisinkv1.ScopeStatus {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	p, err := s.client.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: pipelineName})
	if err != nil || len(p.GetScopes()) != 1 {
		return nil
	}
	if halted := p.GetScopes()[0].GetHalted(); halted != "" {
		t.Fatalf("the scope halted: %s", halted)
	}
	return p.GetScopes()[0]
}

// present is scope once somebody answers.
func (s *system) present(t *testing.T) (now *unisinkv1.ScopeStatus) {
	t.Helper()
	eventually(t, patience, "the coordinator to tell of the scope", func() bool {
		now = s.scope(t)
		return now != nil
	})
	return now
}

// awaitProgress waits until a generation that is newer than after has decided some epochs.
func (s *system) awaitProgress(t *testing.T, after uint64) (generation uint64) {
	t.Helper()
	s.awaitDecided(t, fmt.Sprintf("three epochs of a generation after %d", after), func(g, n uint64) bool { return g > after && n >= 3 })
	return s.present(t).GetGeneration()
}

// awaitDecided waits until the open generation and its last decided epoch are as wanted.
func (s *system) awaitDecided(t *testing.T, what string, wanted func(generation, n uint64) bool) {
	t.Helper()
	var last *unisinkv1.ScopeStatus
	if !within(patience, func() bool {
		last = s.scope(t)
		return last.GetOpen() && wanted(last.GetGeneration(), last.GetFinal())
	}) {
		t.Fatalf("waited %s for %s; last answer: %v", patience, what, last)
	}
}

// instances are those of the members that are attached.
func (s *system) instances(t *testing.T, but string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range s.present(t).GetMembers() {
		if m.GetName() != but {
			out[m.GetName()] = m.GetInstance()
		}
	}
	return out
}

// finish asks for an end and waits for it: every member has left by itself.
func (s *system) finish(t *testing.T, how unisinkv1.DesiredState) {
	t.Helper()
	s.setDesired(t, how)
	var desired unisinkv1.DesiredState
	eventually(t, patience, "the pipeline to stop", func() bool {
		p, err := s.client.Pipelines().GetPipeline(t.Context(), &unisinkv1.GetPipelineRequest{Name: pipelineName})
		desired = p.GetPipeline().GetDesired()
		return err == nil && desired == unisinkv1.DesiredState_DESIRED_STATE_STOPPED
	})
	for _, w := range s.workers {
		eventually(t, patience, w.name+" to leave", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.over
		})
	}
	s.group.Wait()
}

func (s *system) setDesired(t *testing.T, d unisinkv1.DesiredState) {
	t.Helper()
	_, err := s.client.Pipelines().SetDesired(t.Context(), &unisinkv1.SetDesiredRequest{Meta: s.client.NewMeta(), Name: pipelineName, Desired: d})
	if err != nil {
		t.Fatal(err)
	}
}

// sent is how far the source has come, by its log.
func (s *system) sent(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(s.log(memberSource))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(text, []byte("\n"))
	for _, l := range slices.Backward(lines) {
		var line struct {
			Msg  string
			Next int64
		}
		if json.Unmarshal(l, &line) == nil && line.Msg == "sent" {
			return line.Next
		}
	}
	return 0
}

// kick sends a signal to a process.
func kick(t *testing.T, p *child.Process, sig syscall.Signal) {
	t.Helper()
	if err := p.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func newClient(t *testing.T, addresses ...string) *participant.Client {
	t.Helper()
	c, err := participant.NewClient(participant.ClientConfig{Coordinators: addresses, Actor: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// verify counts: every record that the source has given away, by its position when all was proven,
// is in exactly one result, and every result is there once. The results are recomputed from the
// numbers alone.
func (s *system) verify(t *testing.T) {
	t.Helper()
	cut, err := s.client.Pipelines().ProvenCut(t.Context(), &unisinkv1.ProvenCutRequest{Pipeline: pipelineName})
	if err != nil {
		t.Fatal(err)
	}
	if len(cut.GetScopes()) != 1 || len(cut.GetScopes()[0].GetPositions()) != 1 {
		t.Fatalf("the proven cut has not one scope with one position: %v", cut)
	}
	end := cut.GetScopes()[0].GetPositions()[0].GetOffset()
	want := map[string][]int64{}
	for n := range end {
		r := recordAt(n)
		result := fmt.Sprintf("%s at %d", r.Key, r.At-r.At%100)
		want[result] = append(want[result], n)
	}
	times := make([]int, end)
	got := map[string]int{}
	for _, r := range readTotals(t, s.out) {
		result := fmt.Sprintf("%s at %d", r.Key, r.Start)
		got[result]++
		var sum int64
		for _, n := range r.Numbers {
			sum += n
			if n >= end {
				t.Fatalf("record %d is in the output and the source had come to %d only", n, end)
			}
			times[n]++
		}
		if !slices.Equal(r.Numbers, want[result]) || r.Sum != sum || r.Count != int64(len(r.Numbers)) {
			t.Errorf("result %s is %+v, want the numbers %v", result, r, want[result])
		}
	}
	for n, k := range times {
		if k != 1 {
			t.Errorf("record %d is in the output %d times", n, k)
		}
	}
	for result := range want {
		if got[result] != 1 {
			t.Errorf("result %s is in the output %d times", result, got[result])
		}
	}
	t.Logf("%d records in %d results, each once", end, len(got))
}

// readTotals reads what manifests name: whole epochs, in order.
func readTotals(t *testing.T, dir string) []total {
	t.Helper()
	manifests, err := file.ReadManifests(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []total
	for _, m := range manifests {
		for _, f := range m.Files {
			text, err := os.ReadFile(filepath.Join(dir, f.Name))
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
			if int64(len(lines)) != f.Records {
				t.Errorf("%s has %d records, its manifest says %d", f.Name, len(lines), f.Records)
			}
			for _, l := range lines {
				var r total
				if err := json.Unmarshal(l, &r); err != nil {
					t.Fatalf("%s: %v", f.Name, err)
				}
				out = append(out, r)
			}
		}
	}
	return out
}
