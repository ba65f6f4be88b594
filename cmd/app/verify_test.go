package app_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/app"
	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/processor/stream"
)

// shop is one node, a broker and the orders pipeline, as processes.
type shop struct {
	t           testing.TB
	crew        *child.Crew
	dir, out    string
	client      string
	broker      string
	admin       *kafka.Admin
	pipeline    *child.Process
	interesting int // partitions
}

func openShop(t testing.TB) *shop {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	s := &shop{t: t, crew: child.New(), dir: t.TempDir(), interesting: 2}
	t.Cleanup(func() {
		if err := s.crew.End(); err != nil {
			t.Error(err)
		}
	})
	s.out = filepath.Join(s.dir, "out")
	raft := port(t)
	s.client, s.broker = port(t), port(t)
	s.start("kafka", "dev", "kafka", "--listen", s.broker)
	s.start("node", "serve", "--node", "n1", "--data", filepath.Join(s.dir, "n1"), "--client", s.client, "--raft", raft)
	s.await("cluster status", "not bootstrapped", "cluster", "status")
	s.mustUnisink("cluster", "bootstrap", "shop", "--node", "n1="+raft+","+s.client)
	s.await("a leader", "leader", "cluster", "status")
	var err error
	if s.admin, err = kafka.NewAdmin(kafka.AdminConfig{Brokers: []string{s.broker}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.admin.Close)
	for _, topic := range []string{"orders", "totals"} {
		if err := s.admin.CreateTopic(t.Context(), topic, s.interesting, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.run()
	s.await("the pipeline", "orders/0  running", "pipeline", "list")
	return s
}

func port(t testing.TB) string {
	t.Helper()
	addr, err := freeport.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func (s *shop) start(name string, args ...string) *child.Process {
	s.t.Helper()
	p, err := s.crew.Start(child.Spec{Name: name, Path: "unisink", Args: args, Dir: s.dir, Log: filepath.Join(s.dir, name+".log")})
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *shop) run() {
	s.t.Helper()
	s.pipeline = s.start("pipeline", "run", "orders", "-c", s.client, "--brokers", s.broker, "--to", "totals", "--dir", s.out, "--epoch", "50ms")
}

// unisink runs a command in this process.
func (s *shop) unisink(args ...string) (code int, out, errs string) {
	s.t.Helper()
	var o, e bytes.Buffer
	code = app.Main(s.t.Context(), append([]string{"unisink", "-c", s.client}, args...), app.WithPipeline(app.OrdersPipeline()), app.WithOutput(&o, &e))
	return code, o.String(), e.String()
}

func (s *shop) mustUnisink(args ...string) string {
	s.t.Helper()
	code, out, errs := s.unisink(args...)
	if code != 0 {
		s.t.Fatalf("unisink %s: exit code %d: %s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

func (s *shop) await(what, text string, args ...string) {
	s.t.Helper()
	end := time.Now().Add(patience)
	for {
		_, out, errs := s.unisink(args...)
		if strings.Contains(out, text) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("waited in vain for %s; last: %s%s", what, out, errs)
		}
		pause(50 * time.Millisecond)
	}
}

func pause(d time.Duration) { <-time.NewTimer(d).C }

func (s *shop) produce(from, to int) {
	s.t.Helper()
	if err := s.admin.Produce(s.t.Context(), "orders", fixedOrders(from, to)); err != nil {
		s.t.Fatal(err)
	}
}

// drain waits until records were read: a drain ends where the pipeline is, and reads no further.
func (s *shop) drain(records int) {
	s.t.Helper()
	for end := time.Now().Add(patience); s.verify("totals", s.out).Records < records; pause(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%d records are not read", records)
		}
	}
	s.mustUnisink("pipeline", "stop", "--drain", "orders", "--timeout", "30s")
	<-s.pipeline.Done()
	if err := s.pipeline.Err(); err != nil {
		s.t.Fatalf("the pipeline ended with %v", err)
	}
}

type aCase struct{ Sink, Key, Window string }

type verdict struct {
	Verdict        string
	Records        int
	Windows        int
	Missing        []aCase
	Doubled        []aCase
	Different      []aCase
	Undeterminable []aCase
}

// verify runs the command and checks its form: just those keys, counts as numbers, and the exit code.
func (s *shop) verify(to, dir string) verdict {
	s.t.Helper()
	code, out, errs := s.unisink("verify", "orders", "--brokers", s.broker, "--to", to, "--dir", dir, "-o", "json")
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &keys); err != nil {
		s.t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	want := []string{"compared", "different", "doubled", "missing", "records", "undeterminable", "verdict", "windows"}
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, want) {
		s.t.Errorf("keys are %v", got)
	}
	var v verdict
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		s.t.Fatal(err)
	}
	if wantCode := map[string]int{"clean": 0, "broken": 10, "undeterminable": 10}[v.Verdict]; code != wantCode {
		s.t.Errorf("verdict %s with exit code %d", v.Verdict, code)
	}
	return v
}

// total is a result as the pipeline writes it.
type total struct {
	Customer    string `json:"customer"`
	WindowStart int64  `json:"window_start"`
	WindowEnd   int64  `json:"window_end"`
	Count       int64  `json:"count"`
	Sum         int64  `json:"sum_cents"`
}

func (s *shop) name(sink string, line []byte) aCase {
	s.t.Helper()
	var x total
	if err := json.Unmarshal(line, &x); err != nil {
		s.t.Fatalf("%v: %s", err, line)
	}
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
	return aCase{sink, x.Customer, at(x.WindowStart) + "/" + at(x.WindowEnd)}
}

func (s *shop) altered(line []byte) []byte {
	s.t.Helper()
	var x total
	if err := json.Unmarshal(line, &x); err != nil {
		s.t.Fatal(err)
	}
	x.Sum++
	out, err := json.Marshal(x)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func TestVerifySeesWhatIsMissingDoubledAndAltered(t *testing.T) {
	s := openShop(t)
	const records, seconds, customers = 1500, 15, 10
	s.produce(0, records)
	s.drain(records)
	const windows = seconds * customers
	if v := s.verify("totals", s.out); v.Verdict != "clean" || v.Records != records || v.Windows != windows || len(v.Missing)+len(v.Doubled)+len(v.Different)+len(v.Undeterminable) != 0 {
		t.Fatalf("untouched: %+v", v)
	}

	badTopic, inTopic := s.sabotageTopic()
	if v := s.verify(badTopic, s.out); !sameCases(t, v, inTopic) || v.Records != records || v.Windows != windows {
		t.Errorf("topic: %+v", v)
	}
	badDir, inDir := s.sabotageDir()
	if v := s.verify("totals", badDir); !sameCases(t, v, inDir) || v.Records != records || v.Windows != windows {
		t.Errorf("directory: %+v", v)
	}
	both := verdict{
		Verdict: "broken",
		Missing: append(inDir.Missing, inTopic.Missing...), Doubled: append(inDir.Doubled, inTopic.Doubled...), Different: append(inDir.Different, inTopic.Different...),
	}
	if v := s.verify(badTopic, badDir); !sameCases(t, v, both) {
		t.Errorf("both: %+v", v)
	}
	if code, out, _ := s.unisink("verify", "orders", "--brokers", s.broker, "--to", badTopic, "--dir", s.out); code != 10 || !strings.Contains(out, "broken") ||
		!strings.Contains(out, "missing    totals") || !strings.Contains(out, inTopic.Different[0].Key) {
		t.Errorf("as a table, exit code %d:\n%s", code, out)
	}
}

func sameCases(t *testing.T, got, want verdict) bool {
	t.Helper()
	got.Records, got.Windows, want.Records, want.Windows = 0, 0, 0, 0
	for _, v := range []*verdict{&got, &want} {
		for _, l := range []*[]aCase{&v.Missing, &v.Doubled, &v.Different, &v.Undeterminable} {
			*l = slices.SortedFunc(slices.Values(*l), func(a, b aCase) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	}
	diff := gocmp.Diff(want, got)
	if diff != "" {
		t.Error(diff)
	}
	return diff == ""
}

// sabotageTopic copies the output, leaves one record out, doubles another and alters a third.
func (s *shop) sabotageTopic() (name string, done verdict) {
	s.t.Helper()
	name = "totals-sabotaged"
	if err := s.admin.CreateTopic(s.t.Context(), name, s.interesting, nil); err != nil {
		s.t.Fatal(err)
	}
	var all []stream.Record
	err := s.admin.ReadAll(s.t.Context(), "totals", true, nil, nil, func(r *stream.Record) error {
		all = append(all, stream.Record{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Time: r.Time})
		return nil
	})
	if err != nil || len(all) < 100 {
		s.t.Fatalf("%d records, %v", len(all), err)
	}
	done = verdict{
		Verdict: "broken", Missing: []aCase{s.name("totals", all[7].Value)}, Doubled: []aCase{s.name("totals", all[50].Value)},
		Different: []aCase{s.name("totals", all[99].Value)},
	}
	all[99].Value = s.altered(all[99].Value)
	all = append(all, all[50])
	all = slices.Delete(all, 7, 8)
	if err := s.admin.Produce(s.t.Context(), name, all); err != nil {
		s.t.Fatal(err)
	}
	return name, done
}

// sabotageDir does the same in a copy of the directory; the manifests stay as they are.
func (s *shop) sabotageDir() (dir string, done verdict) {
	s.t.Helper()
	dir = filepath.Join(s.dir, "sabotaged")
	if err := os.CopyFS(dir, os.DirFS(s.out)); err != nil {
		s.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		s.t.Fatalf("%v, %v", files, err)
	}
	done.Verdict = "broken"
	n := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			s.t.Fatal(err)
		}
		var out [][]byte
		for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
			switch n++; n {
			case 3:
				done.Missing = []aCase{s.name("files", line)}
			case 60:
				done.Doubled = []aCase{s.name("files", line)}
				out = append(out, line, line)
			case 110:
				done.Different = []aCase{s.name("files", line)}
				out = append(out, s.altered(line))
			default:
				out = append(out, line)
			}
		}
		if err := os.WriteFile(f, append(bytes.Join(out, []byte("\n")), '\n'), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return dir, done
}

// While it runs, killed, started again and stopped, verify judges what is proven and is clean.
func TestVerifyIsCleanWhileThePipelineRunsAndWhenItIsStopped(t *testing.T) {
	s := openShop(t)
	n := 0
	more := func(count int) {
		s.produce(n, n+count)
		n += count
	}
	more(300)
	s.await("epochs with branches", `"files"`, "epoch", "list", "orders", "-o", "json")
	for round := range 30 {
		more(40)
		if round == 15 {
			if err := s.pipeline.Kill(); err != nil {
				t.Fatal(err)
			}
			s.run()
		}
		if v := s.verify("totals", s.out); v.Verdict != "clean" {
			t.Fatalf("round %d, running: %+v", round, v)
		}
	}
	s.mustUnisink("pipeline", "stop", "orders", "--timeout", "30s")
	<-s.pipeline.Done()
	if v := s.verify("totals", s.out); v.Verdict != "clean" {
		t.Errorf("stopped: %+v", v)
	}
	s.mustUnisink("pipeline", "start", "orders")
	s.run()
	more(500)
	s.drain(n)
	v := s.verify("totals", s.out)
	if v.Verdict != "clean" || v.Records != n || v.Windows != n/10 {
		t.Errorf("drained: %+v after %d records", v, n)
	}
}
