package demo

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/unisink/unisink/internal/freeport"
	"github.com/unisink/unisink/internal/services"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// startServices starts the broker and three nodes, and makes a group of them.
func (d *demo) startServices(ctx context.Context) error {
	startKafka := d.startEmbedded
	if d.c.Kafka == RealKafka {
		startKafka = d.startReal
	}
	err := startKafka(ctx)
	if err != nil {
		return err
	}
	var addresses []string
	for i := range 3 {
		n := &node{id: fmt.Sprintf("n%d", i+1)}
		if n.client, err = freeport.Loopback(); err != nil {
			return err
		}
		if n.raft, err = freeport.Loopback(); err != nil {
			return err
		}
		if err := d.startNode(n); err != nil {
			return err
		}
		d.nodes = append(d.nodes, n)
		addresses = append(addresses, n.client)
	}
	for _, n := range d.nodes {
		if err := d.awaitPort(ctx, n.client, n.proc); err != nil {
			return d.explain(err)
		}
	}
	if d.client, err = newClient(addresses...); err != nil {
		return err
	}
	if err := d.bootstrap(ctx); err != nil {
		return d.explain(err)
	}
	if err := d.c.Workload.Prepare(ctx, d.broker, filepath.Join(d.dir, "out")); err != nil {
		return d.explain(fmt.Errorf("prepare the workload: %w", err))
	}
	if w, ok := d.c.Workload.(WithDatabase); ok {
		if err := d.startPostgres(ctx, w); err != nil {
			return d.explain(err)
		}
	}
	return d.startResolver()
}

// startEmbedded starts the broker that is part of this binary.
func (d *demo) startEmbedded(ctx context.Context) (err error) {
	if d.broker, err = freeport.Loopback(); err != nil {
		return err
	}
	kafka, err := d.crew.start("kafka", "dev", "kafka", "--listen", d.broker)
	if err != nil {
		return err
	}
	if err := d.awaitPort(ctx, d.broker, kafka); err != nil {
		return d.explain(err)
	}
	return nil
}

// startReal starts Apache Kafka, which is fetched the first time, and says what takes so long.
func (d *demo) startReal(ctx context.Context) (err error) {
	fmt.Fprintf(d.c.Out, "starting Apache Kafka %s\n", services.KafkaCurrent)
	began := time.Now()
	done := make(chan struct{})
	var talk sync.WaitGroup
	talk.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				fmt.Fprintf(d.c.Out, "still at it after %.0f s: the first time Maven fetches about 54 MB, once\n", time.Since(began).Seconds())
			}
		}
	})
	d.kafka, err = services.Kafka(ctx, services.KafkaConfig{Dir: filepath.Join(d.dir, "kafka")})
	close(done)
	talk.Wait()
	if err == nil {
		d.broker = d.kafka.Addrs()[0]
		return nil
	}
	for _, program := range []string{"java", "mvn"} {
		if _, missing := exec.LookPath(program); missing != nil {
			return fmt.Errorf("%s is not on the PATH: Apache Kafka needs Java 17 or newer, and Maven (mvn) to fetch it once; "+
				"install it, or take the embedded broker with --kafka embedded", program)
		}
	}
	return err
}

func (d *demo) startNode(n *node) error {
	p, err := d.crew.start(n.id, "serve", "--node", n.id, "--data", filepath.Join(d.dir, n.id),
		"--client", n.client, "--raft", n.raft, "--log-level", "debug", "--log-format", "json")
	if err != nil {
		return err
	}
	d.mu.Lock()
	n.proc = p
	d.mu.Unlock()
	return nil
}

func (d *demo) bootstrap(ctx context.Context) error {
	cl, err := newClient(d.nodes[0].client)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	req := &unisinkv1.BootstrapRequest{Meta: cl.NewMeta(), Namespace: "demo"}
	for _, n := range d.nodes {
		req.Nodes = append(req.Nodes, &unisinkv1.Node{Id: n.id, RaftAddress: n.raft, ClientAddress: n.client, Voter: true})
	}
	if _, err := cl.Cluster().Bootstrap(ctx, req); err != nil {
		return fmt.Errorf("bootstrap the group: %w", err)
	}
	return nil
}

// revive starts again what was killed, but for the pipeline, which has a supervisor.
func (d *demo) revive(ctx context.Context) error {
	if err := d.reviveOthers(ctx); err != nil {
		return err
	}
	for _, n := range d.nodes {
		if n.proc.alive() {
			continue
		}
		// Long enough dead for the others to have to do without it.
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		if err := d.startNode(n); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) awaitPort(ctx context.Context, addr string, p *proc) error {
	end := time.Now().Add(15 * time.Second)
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err == nil {
			if err := conn.Close(); err != nil {
				return err
			}
		}
		if err == nil && p.alive() {
			return nil
		}
		if !p.alive() {
			return fmt.Errorf("%s ended before it answered at %s (%v)", p.name, addr, said(p.Err()))
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s did not answer at %s within 15 s: %w", p.name, addr, err)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// roles asks the nodes who leads.
func (d *demo) roles(ctx context.Context) (leader *node, followers []*node, err error) {
	end := time.Now().Add(15 * time.Second)
	for {
		leader, followers = nil, nil
		st, err := d.status(ctx)
		if err == nil {
			for _, n := range d.nodes {
				if n.id == st.GetLeader() {
					leader = n
				} else if n.proc.alive() {
					followers = append(followers, n)
				}
			}
			if leader != nil && len(followers) == 2 {
				return leader, followers, nil
			}
		}
		if time.Now().After(end) {
			return nil, nil, fmt.Errorf("the group had no leader and two followers within 15 s (last answer: %s)", said(err))
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, nil, err
		}
	}
}

func (d *demo) status(ctx context.Context) (*unisinkv1.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return d.client.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
}

func (d *demo) pipeline(ctx context.Context) (*unisinkv1.GetPipelineResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return d.client.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: d.pipelineName()})
}

// await asks until it holds.
func (d *demo) await(ctx context.Context, limit time.Duration, what string, holds func(*unisinkv1.GetPipelineResponse) bool) error {
	end := time.Now().Add(limit)
	for {
		p, err := d.pipeline(ctx)
		if err == nil && holds(p) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %s for %s (last answer: %v, error: %s)", limit, what, p, said(err))
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// awaitEpochs waits until n epochs of the newest generation are decided and the group is whole.
func (d *demo) awaitEpochs(ctx context.Context, n uint64) error {
	return d.await(ctx, 20*time.Second, fmt.Sprintf("%d decided epochs", n), func(p *unisinkv1.GetPipelineResponse) bool {
		for _, s := range p.GetScopes() {
			if s.GetOpen() && s.GetFinal() >= n {
				return true
			}
		}
		return false
	})
}

// awaitProven waits until the proven positions add up to that many records: a drain ends where the
// pipeline is, and reads no further.
func (d *demo) awaitProven(ctx context.Context, records int64) error {
	const limit = 20 * time.Second
	end := time.Now().Add(limit)
	for {
		cut, err := d.client.Pipelines().ProvenCut(ctx, &unisinkv1.ProvenCutRequest{Pipeline: d.pipelineName()})
		var read int64
		for _, s := range cut.GetScopes() {
			for _, p := range s.GetPositions() {
				read += p.GetOffset()
			}
		}
		if err == nil && read >= records {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d orders were through after %s (last error: %s)", read, records, limit, said(err))
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// said is an error within another sentence.
func said(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}

// logTails is the last lines of every child's log.
func (d *demo) logTails(lines int) string {
	files, err := filepath.Glob(filepath.Join(d.dir, "*.log"))
	if err != nil {
		return err.Error()
	}
	var out bytes.Buffer
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", filepath.Base(f), err)
			continue
		}
		rows := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		for _, r := range rows[max(0, len(rows)-lines):] {
			fmt.Fprintf(&out, "%s: %s\n", filepath.Base(f), r)
		}
	}
	return out.String()
}
