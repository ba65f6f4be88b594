package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/internal/obs"
	"github.com/unisink/unisink/internal/services"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// What a pipeline into Kafka, PostgreSQL and files has decided and not finished is destroyed by a stranger, on the real
// services, while its process is away. Whoever comes to finish it must find that out and say so; only the scope that has
// lost something is halted.

// vandal is what the tests of this file share: the services, a node, and a pipeline that nobody touches.
type vandal struct {
	t     *testing.T
	g     group
	node  *served
	bin   string // with fault points
	dir   string
	crew  *child.Crew
	db    *services.PostgresServer
	kafka *services.KafkaCluster
	cl    *kgo.Client
	http  string // of the node
}

const spared = "spared"

func newVandal(t *testing.T) *vandal {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real services")
	}
	v := &vandal{t: t, dir: t.TempDir(), crew: child.New()}
	t.Cleanup(func() { v.ok(v.crew.End()) })
	v.node = newServed(t, v.dir, "n1")
	var err error
	v.http, err = freeport.Loopback()
	v.ok(err)
	t.Setenv("UNISINK_HTTP", v.http)
	v.node.start(t, "unisink")
	t.Setenv("UNISINK_HTTP", "")
	ctx, cancel := context.WithCancel(context.Background()) // a machine that is busy builds for minutes; what is awaited has limits of its own
	t.Cleanup(cancel)
	v.g = group{groupOf(t, v.node).Client, ctx}
	v.g.bootstrap(t, v.node)
	v.bin = filepath.Join(v.dir, "unisink-faults")
	out, err := exec.CommandContext(ctx, "go", "build", "-tags", "faults", "-o", v.bin, "github.com/unisink/unisink/cmd/unisink").CombinedOutput()
	if err != nil {
		t.Fatalf("build with fault points: %v\n%s", err, out)
	}
	v.db, err = services.Postgres(ctx, services.PostgresConfig{})
	v.ok(err)
	t.Cleanup(func() { v.ok(v.db.Close()) })
	v.kafka, err = services.Kafka(ctx, services.KafkaConfig{})
	v.ok(err)
	t.Cleanup(func() { v.ok(v.kafka.Close()) })
	v.cl, err = kgo.NewClient(kgo.SeedBrokers(v.kafka.Addrs()...), kgo.DefaultProduceTopic("unset"))
	v.ok(err)
	t.Cleanup(v.cl.Close)
	return v
}

func (v *vandal) ok(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// lay makes topics, table and specification of a pipeline that copies records into all three.
func (v *vandal) lay(name, mode string) {
	v.t.Helper()
	made, err := kadm.NewClient(v.cl).CreateTopics(v.g.ctx, 4, 1, nil, name+"-in", name+"-out")
	v.ok(errors.Join(err, made.Error()))
	v.sql("CREATE TABLE " + name + " (v text)")
	text := fmt.Sprintf(`pipeline: %[1]s
epoch: 100ms
source: {name: in, kafka: {brokers: %[2]q, topics: [%[1]s-in]}}
sinks:
  - {name: topic, kafka: {brokers: %[2]q, topic: %[1]s-out}}
  - {name: table, postgres: {dsn: {env: VANDAL_POSTGRES}, table: %[1]s, mode: %[3]s, columns: {v: value()}}}
  - {name: files, file: {dir: %[4]q}}
`, name, v.kafka.Addrs()[0], mode, filepath.Join(v.dir, name))
	v.ok(os.WriteFile(filepath.Join(v.dir, name+".yaml"), []byte(text), 0o600))
}

// run starts a pipeline, with a plan of faults.
func (v *vandal) run(name, plan string) *child.Process {
	v.t.Helper()
	p, err := v.crew.Start(child.Spec{
		Name: name, Path: v.bin, Args: []string{"run", filepath.Join(v.dir, name+".yaml"), "-c", v.node.client}, Log: filepath.Join(v.dir, name+".log"),
		Env: []string{"UNISINK_FAULT=" + plan, "VANDAL_POSTGRES=" + v.db.DSN()},
	})
	v.ok(err)
	return p
}

// again starts a pipeline without faults.
func (v *vandal) again(name string) *child.Process { return v.run(name, "") }

func (v *vandal) write(name, value string) {
	v.t.Helper()
	v.ok(v.cl.ProduceSync(v.g.ctx, &kgo.Record{Topic: name + "-in", Value: []byte(`{"v":"` + value + `"}`)}).FirstErr())
}

// sql runs a statement and returns the first column of its first row.
func (v *vandal) sql(text string) string {
	v.t.Helper()
	out, err := v.db.Query(v.g.ctx, "postgres", text)
	v.ok(err)
	return out
}

// visible waits until a value is in all three places.
func (v *vandal) visible(name, value string) {
	v.t.Helper()
	v.until(name+" brings out "+value, func() error {
		if n := v.sql(fmt.Sprintf("SELECT count(*)::text FROM %s WHERE v LIKE '%%%s%%'", name, value)); n != "1" {
			return fmt.Errorf("%s rows in the table", n)
		}
		files, err := filepath.Glob(filepath.Join(v.dir, name, "*.jsonl"))
		if err != nil {
			return err
		}
		n := 0
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			n += strings.Count(string(text), value)
		}
		if n != 1 {
			return fmt.Errorf("%d lines in the files", n)
		}
		return nil
	})
}

func (v *vandal) until(what string, ask func() error) {
	v.t.Helper()
	const limit = time.Minute
	err := ask()
	for end := time.Now().Add(limit); err != nil && time.Now().Before(end); err = ask() {
		pause(50 * time.Millisecond)
	}
	if err != nil {
		logs, _ := filepath.Glob(filepath.Join(v.dir, "*.log"))
		for _, l := range logs {
			out, _ := exec.Command("tail", "-n", "6", l).Output()
			v.t.Logf("%s:\n%s", filepath.Base(l), out)
		}
		v.t.Fatalf("waited %s until %s: %v", limit, what, err)
	}
}

// expect runs a command.
func (v *vandal) expect(code int, says string, args ...string) string {
	v.t.Helper()
	text, got := said(v.g, v.node, args...)
	if got != code || !strings.Contains(text, says) {
		v.t.Errorf("unisink %s: exit code %d, want %d with %q:\n%s", strings.Join(args, " "), got, code, says, text)
	}
	return text
}

// halted is why a scope is halted; "" if it is not.
func (v *vandal) halted(name string) string {
	r, err := v.g.Pipelines().GetPipeline(v.g.ctx, &unisinkv1.GetPipelineRequest{Name: name})
	if err != nil || len(r.GetScopes()) == 0 {
		return ""
	}
	return r.GetScopes()[0].GetHalted()
}

// broken is the metric of branches that call for a person.
func (v *vandal) broken() (n int) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.g.ctx, http.MethodGet, "http://"+v.http+"/metrics", nil)
	v.ok(err)
	answer, err := http.DefaultClient.Do(req)
	v.ok(err)
	text, err := io.ReadAll(answer.Body)
	v.ok(errors.Join(err, answer.Body.Close()))
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, obs.MetricHeuristics+" "); is {
			n, err = strconv.Atoi(strings.TrimSpace(value))
			v.ok(err)
			return n
		}
	}
	v.t.Fatalf("%s is not shown", obs.MetricHeuristics)
	return 0
}

// unfinished brings a pipeline to where an epoch is decided and a branch is not finished, its process dead at a point.
func (v *vandal) unfinished(name, mode, point string) {
	v.t.Helper()
	v.lay(name, mode)
	p := v.run(name, point+"@1=crash")
	v.write(name, "first")
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		v.t.Fatalf("the pipeline %s did not come to %s", name, point)
	}
	text, err := os.ReadFile(filepath.Join(v.dir, name+".log"))
	v.ok(err)
	if !strings.Contains(string(text), "fault: crash at "+point) {
		v.t.Fatalf("the pipeline %s ended before it came to %s: %s", name, point, text)
	}
}

// rollBack is what an administrator does who tidies up.
func (v *vandal) rollBack(name string) {
	gid := v.sql("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'demo." + name + ".%'")
	if gid == "" {
		v.t.Fatal("nothing is prepared")
	}
	v.sql("ROLLBACK PREPARED '" + gid + "'")
}

// abort is what a process does that uses a transactional id of ours.
func (v *vandal) abort(name string) {
	adm := kadm.NewClient(v.cl)
	all, err := adm.ListTransactions(v.g.ctx, nil, nil)
	v.ok(err)
	var ids []string
	for _, x := range all.Sorted() {
		if strings.HasPrefix(x.TxnID, "demo."+name+".") && x.State == "Ongoing" {
			ids = append(ids, x.TxnID)
		}
	}
	if len(ids) != 1 {
		v.t.Fatalf("open transactions: %v", ids)
	}
	stranger, err := kgo.NewClient(kgo.SeedBrokers(v.kafka.Addrs()...), kgo.TransactionalID(ids[0]))
	v.ok(err)
	defer stranger.Close()
	_, _, err = stranger.ProducerID(v.g.ctx) // who takes the id over aborts what is open under it
	v.ok(err)
}

// remove deletes what is staged in a directory.
func (v *vandal) remove(name string) {
	n := 0
	err := filepath.WalkDir(filepath.Join(v.dir, name, ".unisink", "staged"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
			err = os.Remove(path)
		}
		return err
	})
	v.ok(err)
	if n == 0 {
		v.t.Fatal("no staged file")
	}
}

// truncate empties the table of markers, of which there is a copy.
func (v *vandal) truncate(name string) {
	v.sql("CREATE TABLE " + name + "_markers AS SELECT * FROM unisink.commits")
	v.sql("TRUNCATE unisink.commits")
}

// putBack brings the markers back.
func (v *vandal) putBack(name string) {
	v.sql("INSERT INTO unisink.commits SELECT * FROM " + name + "_markers ON CONFLICT DO NOTHING")
}

// unstage deletes what says that rows are staged.
func (v *vandal) unstage(name string) {
	v.sql("DELETE FROM unisink.staged WHERE gid LIKE 'demo." + name + ".%'")
}

// thin deletes staged rows.
func (v *vandal) thin(name string) {
	v.sql("DELETE FROM unisink.staged_rows WHERE gid LIKE 'demo." + name + ".%'")
}

// accept is a person's answer: go on, and the loss is known.
func (v *vandal) accept(name, _, branch string) {
	v.t.Helper()
	v.expect(0, branch, "pipeline", "accept-loss", name, "--why", "it is known what happened")
}

// force is the same in two steps.
func (v *vandal) force(name, txn, branch string) {
	v.t.Helper()
	v.expect(0, branch, "txn", "resolve", txn, "--force", "accept-loss", "--branch", branch, "--why", "looked at the rows")
	v.expect(0, "", "pipeline", "resume", name, "--why", "looked at the rows")
}

// mend resumes in vain, puts back what was removed, and resumes again.
func (v *vandal) mend(name, _, _ string) {
	v.t.Helper()
	v.expect(0, "", "pipeline", "resume", name, "--why", "is it there again?")
	v.isHalted(name, "main/table", "is undeterminable")
	v.putBack(name)
	v.expect(0, "", "pipeline", "resume", name, "--why", "the markers are back")
}

// isHalted waits until a pipeline is halted over a branch, and the reason says so.
func (v *vandal) isHalted(name, branch, says string) {
	v.t.Helper()
	v.until("the scope is halted", func() error {
		if why := v.halted(name); !strings.Contains(why, branch) || !strings.Contains(why, says) {
			return fmt.Errorf("halted: %q", why)
		}
		return nil
	})
}

// resolve starts a resolver that reaches what a pipeline writes to.
func (v *vandal) resolve(name string) *child.Process {
	v.t.Helper()
	text := fmt.Sprintf("resources:\n  - kafka: {brokers: %q}\n  - postgres: {dsn: {env: VANDAL_POSTGRES}}\n  - file: {dir: %q}\n", v.kafka.Addrs()[0], filepath.Join(v.dir, name))
	file := filepath.Join(v.dir, name+"-resolver.yaml")
	v.ok(os.WriteFile(file, []byte(text), 0o600))
	p, err := v.crew.Start(child.Spec{
		Name: "resolver", Path: v.bin, Args: []string{"resolver", file, "-c", v.node.client}, Log: filepath.Join(v.dir, "resolver.log"),
		Env: []string{"UNISINK_FAULT=", "VANDAL_POSTGRES=" + v.db.DSN()},
	})
	v.ok(err)
	return p
}

// told waits until a pipeline's loss, or what nobody can tell any more of it, is said with its reason. It returns the transaction.
func (v *vandal) told(name, says string) (txn string) {
	v.t.Helper()
	v.until("what was destroyed is told", func() error {
		text, _ := said(v.g, v.node, "txn", "list", "--in-doubt")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, name+"/") && strings.Contains(line, says) {
				txn, _, _ = strings.Cut(line, " ")
				return nil
			}
		}
		return errors.New(text)
	})
	return txn
}

// Rows T1, O2, O6, O10: what is destroyed between the decision and the end of a branch is found by whoever finishes it,
// the pipeline's next process or a resolver. It is never taken for done. Where the resource proves the opposite of the decision the scope is
// halted; where nobody can tell any more too, and nothing is taken for proven. It says why, no other pipeline notices, and a person
// lets it go on.
func TestO6_WhatAStrangerDestroysIsFoundAndSaid(t *testing.T) {
	v := newVandal(t)
	v.lay(spared, "prepared")
	v.run(spared, "")
	v.write(spared, "before")
	v.visible(spared, "before")
	for i, c := range []struct {
		what, mode, point string
		strike            func(*vandal, string)
		by                func(*vandal, string) *child.Process // who is to find it
		branch, says      string
		answer            func(v *vandal, name, txn, branch string) // a person's
	}{
		{"O2/rolled back by an administrator", "prepared", "postgres/before-finish", (*vandal).rollBack, (*vandal).again, "main/table", "was rolled back, says the server's commit log", (*vandal).accept},
		{"O2/the same, found by a resolver", "prepared", "postgres/before-finish", (*vandal).rollBack, (*vandal).resolve, "main/table", "was rolled back, says the server's commit log", (*vandal).accept},
		{"T1/aborted by a stranger", "prepared", "kafka/before-endtxn", (*vandal).abort, (*vandal).again, "main/topic", "has its marker at", (*vandal).force},
		{"O6/staged file deleted", "prepared", "file/before-link", (*vandal).remove, (*vandal).again, "main/files", "is neither staged nor published, and no manifest names it", (*vandal).accept},
		{"O10/markers truncated", "prepared", "postgres/after-finish", (*vandal).truncate, (*vandal).again, "main/table", "its marker in unisink.commits is gone", (*vandal).mend},
		{"O10/markers truncated, found by a resolver", "prepared", "postgres/after-finish", (*vandal).truncate, (*vandal).resolve, "main/table", "its marker in unisink.commits is gone", (*vandal).accept},
		{"O10/markers truncated, staged", "staged", "postgres/after-move", (*vandal).truncate, (*vandal).again, "main/table", "neither its marker nor a note that it was dropped is there", (*vandal).force},
		{"O10/what says that rows are staged deleted", "staged", "postgres/before-move", (*vandal).unstage, (*vandal).again, "main/table", "neither its marker nor a note that it was dropped is there", (*vandal).accept},
		{"O6/staged rows deleted", "staged", "postgres/before-move", (*vandal).thin, (*vandal).again, "main/table", "unisink.staged_rows has 0 of them now", (*vandal).accept},
	} {
		t.Run(c.what, func(t *testing.T) {
			v := *v
			v.t = t
			name := fmt.Sprintf("struck%d", i)
			v.unfinished(name, c.mode, c.point)
			c.strike(&v, name)
			broken := v.broken()
			p := c.by(&v, name)
			defer func() { v.ok(p.Kill()) }()
			txn := v.told(name, c.says)

			v.write(spared, "during-"+name)
			v.visible(spared, "during-"+name)
			if why := v.halted(spared); why != "" {
				t.Errorf("the other pipeline is halted: %s", why)
			}
			if cut := v.expect(0, name+"/0", "epoch", "cut", name); strings.Contains(cut, strings.Split(txn, "@")[1]) {
				t.Errorf("the cut goes past a loss that nobody accepted:\n%s", cut)
			}
			v.isHalted(name, c.branch, c.says)
			if n := v.broken(); n != broken+1 {
				t.Errorf("%s is %d, was %d before", obs.MetricHeuristics, n, broken)
			}
			v.expect(11, "NEEDS A PERSON", "txn", "list", "--in-doubt")
			v.expect(11, "unisink txn resolve "+txn+" --force accept-loss --branch ", "txn", "show", txn)
			v.expect(11, "  branch "+c.branch, "pipeline", "list")
			c.answer(&v, name, txn, c.branch)
			if !p.Alive() || strings.Contains(c.what, "resolver") {
				q := v.again(name)
				defer func() { v.ok(q.Kill()) }()
			}
			v.write(name, "second")
			v.visible(name, "second")
			v.until("nothing is in doubt after a person has decided", func() error {
				if text, code := said(v.g, v.node, "txn", "list", "--in-doubt"); code != 0 || strings.Contains(text, name+"/") {
					return fmt.Errorf("exit code %d: %s", code, text)
				}
				return nil
			})
		})
	}
}
