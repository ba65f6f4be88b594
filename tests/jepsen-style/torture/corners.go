package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/services"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
	"github.com/unisink/unisink/tests/jepsen-style/rig"
)

// Two of the adapter's ways are taken only when a broker has lost something, at a moment that kills
// hardly ever meet: a commit whose marker it dropped, and records that it deleted undecided. The
// corners lead there on purpose, after everything else: on two brokers, with a pipeline for each, and
// the same group of nodes.

const (
	cornerRecords = 200
	cornerEpoch   = 100 * time.Millisecond
	// away is how long a finisher stands still between its last look and EndTxn. It is longer than a
	// broker counts as alive after its death, and shorter than an attempt to commit may take.
	away      = 15 * time.Second
	tearTries = 3
	cornerIn  = time.Minute
)

// cornerPoints are the fault points that the corners lead to.
func cornerPoints() []string {
	return []string{"kafka/before-repair", "kafka/after-repair", "kafka/before-loss-note", "kafka/after-loss-note"}
}

// corners is that part of a run.
type corners struct {
	*trial
	cluster *services.KafkaCluster
	client  *kgo.Client
	adm     *kadm.Client
	crew    *child.Crew
	log     string // of all its pipelines
	found   []string
}

// corner leads to the points that are left, and adds to the report what it saw.
func (r *trial) corner(ctx context.Context, crew *child.Crew, report *Report) (err error) {
	r.say("starting two brokers, to tear a commit and to lose records on purpose")
	c := &corners{trial: r, crew: crew, log: filepath.Join(r.dir, "corners.log")}
	if c.cluster, err = services.Kafka(ctx, services.KafkaConfig{Brokers: 2, Dir: filepath.Join(r.dir, "kafka-corners")}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.cluster.Close()) }()
	if c.client, err = kgo.NewClient(kgo.SeedBrokers(c.cluster.Broker(1).Addr())); err != nil {
		return fmt.Errorf("make a client of two brokers: %w", err)
	}
	defer c.client.Close()
	c.adm = kadm.NewClient(c.client)
	for _, f := range []func(context.Context) error{c.tear, c.lose} {
		if err := f(ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, tailOf(c.log))
		}
	}
	_, left, err := rig.LeftOpen(ctx, c.client, namespace)
	if err != nil {
		return err
	}
	hit, _, err := crashes(c.log)
	if err != nil {
		return err
	}
	for p, n := range hit {
		report.Points[p] += n
	}
	report.Corners = true
	report.Left = append(report.Left, left...)
	report.Problems = append(report.Problems, c.found...)
	return nil
}

func tailOf(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// copier starts a pipeline that copies the topic NAME-in to NAME-out, with a plan of faults. Bounded, it
// drains and ends when it has read what is there.
func (c *corners) copier(name, plan string, bounded bool) (*child.Process, error) {
	args := []string{
		"bench", "worker", "--job", "pass-through", "--name", name, "--from", name + "-in", "--to", name + "-out", "--epoch", cornerEpoch.String(),
		"--compression", "none", "--report", filepath.Join(c.dir, name+".json"), "--brokers", c.cluster.Broker(1).Addr(), "--log-level", "debug", "--log-format", "json",
	}
	if bounded {
		args = append(args, "--bounded")
	}
	for _, a := range c.group.addresses() {
		args = append(args, "--coordinator", a)
	}
	return c.crew.Start(child.Spec{Name: "pipeline " + name, Path: c.c.FaultsBin, Args: args, Log: c.log, Env: []string{faultEnv + "=" + plan}})
}

// topics makes both topics of a copier, the second with a partition on each of the brokers named, and fills the first.
func (c *corners) topics(ctx context.Context, name string, on ...int32) error {
	out := make([][]int32, len(on))
	for i, b := range on {
		out[i] = []int32{b}
	}
	if err := errors.Join(
		c.cluster.CreateTopic(ctx, name+"-in", [][]int32{{1}}, nil),
		c.cluster.CreateTopic(ctx, name+"-out", out, nil),
	); err != nil {
		return err
	}
	batch := make([]*kgo.Record, cornerRecords)
	for i := range batch {
		batch[i] = &kgo.Record{Topic: name + "-in", Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%s %d", name, i)}
	}
	if err := c.client.ProduceSync(ctx, batch...).FirstErr(); err != nil {
		return fmt.Errorf("write to %s-in: %w", name, err)
	}
	return nil
}

// crash runs a copier until it has died at a point.
func (c *corners) crash(ctx context.Context, name, point string) error {
	p, err := c.copier(name, point+"@1=crash", false)
	if err != nil {
		return err
	}
	return c.died(ctx, p, point)
}

// died waits for a process to die at a point, as its log shows.
func (c *corners) died(ctx context.Context, p *child.Process, point string) error {
	late := time.NewTimer(cornerIn)
	defer late.Stop()
	select {
	case <-p.Done():
	case <-late.C:
		return errors.Join(fmt.Errorf("the pipeline did not come to %s within %s", point, cornerIn), p.Kill())
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Kill())
	}
	hit, _, err := crashes(c.log)
	if err == nil && hit[point] == 0 {
		err = fmt.Errorf("the pipeline ended before it came to %s: %w", point, p.Err())
	}
	return err
}

// tear makes a torn commit: a finisher has looked that every partition has a leader, stands still, and
// sends its EndTxn when one has none any more. It and its successor die on both sides of the repair.
func (c *corners) tear(ctx context.Context) error {
	const name, point = "torn", "kafka/before-repair"
	for try := 1; ; try++ {
		this := fmt.Sprintf("%s%d", name, try)
		if err := c.topics(ctx, this, 1, 2); err != nil {
			return err
		}
		p, err := c.copier(this, fmt.Sprintf("kafka/before-endtxn@1=pause:%s,%s@1=crash", away, point), false)
		if err != nil {
			return err
		}
		torn, err := c.leaderless(ctx, this)
		if err != nil {
			return errors.Join(err, p.Kill())
		}
		if torn {
			if err := c.died(ctx, p, point); err != nil {
				return err
			}
			if err := c.crash(ctx, this, "kafka/after-repair"); err != nil {
				return err
			}
		} else if err := p.Kill(); err != nil {
			return err
		}
		// Whatever happened: the next run mends what is left, and everything is there once.
		if err := c.whole(ctx, this); err != nil {
			return err
		}
		if torn {
			return nil
		}
		if try == tearTries {
			return nil // the report names the points as missing
		}
	}
}

// leaderless takes the second broker away while the pipeline stands before its EndTxn, and gives it back when the
// coordinator has called the transaction complete. False: EndTxn came before the partition was without a leader.
func (c *corners) leaderless(ctx context.Context, name string) (bool, error) {
	if err := c.awaitState(ctx, name, "Ongoing"); err != nil {
		return false, err
	}
	if err := c.awaitUnfinished(ctx); err != nil {
		return false, err
	}
	if err := c.cluster.Broker(2).Kill(); err != nil {
		return false, err
	}
	if err := c.cluster.WaitLeader(ctx, name+"-out", 1, -1); err != nil {
		return false, err
	}
	state, err := c.state(ctx, name)
	if err == nil && state == "Ongoing" {
		err = c.awaitState(ctx, name, "CompleteCommit")
	}
	if err == nil {
		err = c.cluster.Broker(2).Restart(ctx)
	}
	if err == nil {
		err = c.cluster.WaitLeader(ctx, name+"-out", 1, 2)
	}
	return state == "Ongoing", err
}

// awaitUnfinished waits until an epoch has been decided for so long that its finisher must stand still.
func (c *corners) awaitUnfinished(ctx context.Context) error {
	const still = time.Second
	since := map[string]time.Time{}
	return rig.Await(ctx, cornerIn, "a decided epoch that is not finished", func() error {
		if err := c.line.update(); err != nil {
			return err
		}
		for _, e := range c.line.open() {
			if since[e].IsZero() {
				since[e] = time.Now()
			}
			if time.Since(since[e]) > still {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// state is that of the pipeline's transaction of which partition 1 of its output is a part; "" if there is none.
func (c *corners) state(ctx context.Context, name string) (string, error) {
	all, err := c.adm.ListTransactions(ctx, nil, nil)
	if err != nil {
		return "", fmt.Errorf("list transactions: %w", err)
	}
	for _, t := range all.Sorted() {
		if strings.HasPrefix(t.TxnID, namespace+"."+name+".") && t.State != "Empty" && !strings.HasSuffix(t.TxnID, ".0.0") {
			return t.State, nil
		}
	}
	return "", nil
}

func (c *corners) awaitState(ctx context.Context, name, want string) error {
	return rig.Await(ctx, cornerIn, "a transaction of "+name+" in state "+want, func() error {
		state, err := c.state(ctx, name)
		if err == nil && state != want {
			err = fmt.Errorf("it is in state %q", state)
		}
		return err
	})
}

// whole lets a pipeline run to its end, and looks that every record has come out once.
func (c *corners) whole(ctx context.Context, name string) error {
	p, err := c.copier(name, "", true)
	if err != nil {
		return err
	}
	late := time.NewTimer(cornerIn)
	defer late.Stop()
	select {
	case <-p.Done():
		if p.Err() != nil {
			return fmt.Errorf("the pipeline %s failed: %w", name, p.Err())
		}
	case <-late.C:
		return errors.Join(fmt.Errorf("the pipeline %s did not end within %s", name, cornerIn), p.Kill())
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Kill())
	}
	seen, err := c.read(ctx, name+"-out")
	if err != nil {
		return err
	}
	for i := range cornerRecords {
		if n := seen[fmt.Sprintf("%s %d", name, i)]; n != 1 {
			c.found = append(c.found, fmt.Sprintf("record %d of %s-in came out %d times, after its commit had been torn", i, name, n))
		}
	}
	return nil
}

// read counts the committed records of a topic by their values.
func (c *corners) read(ctx context.Context, topic string) (map[string]int, error) {
	seen := map[string]int{}
	err := rig.ReadCommitted(ctx, c.cluster.Addrs(), topic, settleIn, func(r *kgo.Record) { seen[string(r.Value)]++ })
	return seen, err
}

// lose deletes records that are decided and not committed. Whoever commits them next notes the loss before it
// sends EndTxn, and dies on both sides of that; the last one proves it, and the scope waits for a person.
func (c *corners) lose(ctx context.Context) error {
	const name = "lost"
	if err := c.topics(ctx, name, 1); err != nil {
		return err
	}
	if err := c.crash(ctx, name, "kafka/before-endtxn"); err != nil {
		return err
	}
	ends, err := c.adm.ListEndOffsets(ctx, name+"-out")
	if err != nil {
		return fmt.Errorf("list end offsets of %s-out: %w", name, err)
	}
	deleted, err := c.adm.DeleteRecords(ctx, ends.Offsets())
	if err = errors.Join(err, deleted.Error()); err != nil {
		return fmt.Errorf("delete the records of %s-out: %w", name, err)
	}
	for _, point := range []string{"kafka/before-loss-note", "kafka/after-loss-note"} {
		if err := c.crash(ctx, name, point); err != nil {
			return err
		}
	}
	return c.admitted(ctx, name)
}

// admitted waits until the loss is proven and the scope waits for a person, saying why.
func (c *corners) admitted(ctx context.Context, name string) error {
	p, err := c.copier(name, "", false)
	if err != nil {
		return err
	}
	halted := ""
	err = rig.Await(ctx, cornerIn, "the scope of "+name+" to halt", func() error {
		one, cancel := context.WithTimeout(ctx, answerIn)
		defer cancel()
		resp, err := c.group.ask.Pipelines().GetPipeline(one, &unisinkv1.GetPipelineRequest{Name: name})
		if err != nil {
			return err
		}
		for _, s := range resp.GetScopes() {
			halted += s.GetHalted()
		}
		if halted == "" {
			return errors.New("it has not")
		}
		return nil
	})
	if err == nil && !strings.Contains(halted, "records of the branch were deleted") {
		c.found = append(c.found, fmt.Sprintf("the scope of %s halted, and does not say that records were deleted: %s", name, halted))
	}
	return errors.Join(err, p.Kill())
}
