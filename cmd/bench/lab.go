package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/bench/group"
	"github.com/unisink/unisink/cmd/bench/worker"
	"github.com/unisink/unisink/internal/child"
	"github.com/unisink/unisink/internal/services"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// LabConfig says with what is measured.
type LabConfig struct {
	// Exe is this binary; it is started again for each process.
	Exe string
	// Brokers of a Kafka of the user's own; empty: a real broker is fetched and started.
	Brokers []string
	Nodes   int // coordinator nodes, 1 or 3
	// Dir for logs and data; empty: a temporary one, which is removed at the end.
	Dir string
	// Progress is told what is going on, a line at a time.
	Progress func(string)
}

func (c LabConfig) validate() error {
	return group.CheckNodes(c.Nodes)
}

// lab is broker and coordinator group, each process its own.
type lab struct {
	c       LabConfig
	dir     string
	crew    *child.Crew
	cluster *services.KafkaCluster // nil: the user's own
	brokers []string
	group   *group.Group
	client  *participant.Client // the group's
	admin   *kafka.Admin
	tag     string // tells this run's topics and pipelines from those of others on the same brokers
}

// inLab runs f with everything started. Whatever happens, no process is left, and no temporary directory.
func inLab(ctx context.Context, c LabConfig, f func(l *lab) error) (err error) {
	l := &lab{c: c, dir: c.Dir, brokers: c.Brokers, tag: strconv.FormatInt(time.Now().UnixMilli()%1e8, 36)}
	if l.dir == "" {
		if l.dir, err = os.MkdirTemp("", "unisink-bench-"); err != nil {
			return fmt.Errorf("make a directory to measure in: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	} else if err = os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("make the directory %s: %w", l.dir, err)
	}
	l.crew = child.New()
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.start(ctx); err != nil {
		return err
	}
	return f(l)
}

func (l *lab) close() error {
	l.group.Close()
	if l.admin != nil {
		l.admin.Close()
	}
	err := l.crew.End()
	if l.cluster != nil {
		err = errors.Join(err, l.cluster.Close())
	}
	return err
}

func (l *lab) say(format string, args ...any) {
	if l.c.Progress != nil {
		l.c.Progress(fmt.Sprintf(format, args...))
	}
}

func (l *lab) start(ctx context.Context) (err error) {
	if len(l.brokers) == 0 {
		l.say("starting Apache Kafka %s", services.KafkaCurrent)
		if l.cluster, err = services.Kafka(ctx, services.KafkaConfig{LongRunning: true}); err != nil {
			return err
		}
		l.brokers = l.cluster.Addrs()
	}
	if l.admin, err = kafka.NewAdmin(kafka.AdminConfig{Brokers: l.brokers}); err != nil {
		return err
	}
	if err := l.admin.Reach(ctx); err != nil {
		return err
	}
	l.say("starting %d coordinator nodes", l.c.Nodes)
	if l.group, err = group.Start(ctx, group.Config{Exe: l.c.Exe, Nodes: l.c.Nodes, Dir: l.dir, Crew: l.crew}); err != nil {
		return err
	}
	l.client = l.group.Client
	return nil
}

func (l *lab) coordinators() []string { return l.group.Addresses() }

// name tells a topic or pipeline from those of other runs.
func (l *lab) name(base string) string { return base + "-" + l.tag }

// topic makes an empty topic whose data goes soon after the topic.
func (l *lab) topic(ctx context.Context, name string, partitions int) error {
	return l.admin.CreateTopic(ctx, name, partitions, map[string]string{"file.delete.delay.ms": "1000"})
}

// task is one run of a job by a process of its own.
type task struct {
	Name     string // of the pipeline, its output topic and its log
	Job      string
	From     string
	Epoch    time.Duration // 0: without transactions
	Bounded  bool
	Settings // of all runs
}

// worker starts the process. Instance tells processes of one task apart.
func (l *lab) worker(t task, instance string) (*child.Process, error) {
	args := []string{
		"bench", "worker", "--job", t.Job, "--name", t.Name, "--from", t.From, "--to", t.Name,
		"--epoch", t.Epoch.String(), "--compression", t.Compression, "--report", l.report(t),
		"--brokers", strings.Join(l.brokers, ","), "--log-level", "warn",
	}
	for _, a := range l.coordinators() {
		args = append(args, "--coordinator", a)
	}
	if t.Bounded {
		args = append(args, "--bounded")
	}
	if t.Profiles != "" {
		args = append(args, "--profile", filepath.Join(t.Profiles, t.Name+instance))
	}
	return l.crew.Start(child.Spec{Name: "the pipeline " + t.Name, Path: l.c.Exe, Args: args, Log: filepath.Join(l.dir, t.Name+instance+".log")})
}

func (l *lab) report(t task) string { return filepath.Join(l.dir, t.Name+".json") }

// ended waits for a process that ends by itself, and reads its report.
func (l *lab) ended(ctx context.Context, t task, p *child.Process) (worker.Report, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for p.Alive() {
		select {
		case <-p.Done():
		case <-tick.C:
			if why := l.halted(ctx, t); why != "" {
				return worker.Report{}, errors.Join(fmt.Errorf("the pipeline %s is halted: %s", t.Name, why), p.Kill())
			}
		case <-ctx.Done():
			return worker.Report{}, errors.Join(context.Cause(ctx), p.Kill())
		}
	}
	if err := p.Err(); err != nil {
		return worker.Report{}, fmt.Errorf("the pipeline %s failed: %w\n%s", t.Name, err, l.tail(t.Name))
	}
	text, err := os.ReadFile(l.report(t))
	if err != nil {
		return worker.Report{}, fmt.Errorf("the pipeline %s left no report: %w", t.Name, err)
	}
	var r worker.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return worker.Report{}, fmt.Errorf("read the report of the pipeline %s: %w", t.Name, err)
	}
	return r, nil
}

// halted is why a pipeline waits for an operator, as far as the coordinator tells now.
func (l *lab) halted(ctx context.Context, t task) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	p, err := l.client.Pipelines().GetPipeline(ctx, &unisinkv1.GetPipelineRequest{Name: t.Name})
	if err != nil {
		return "" // not declared yet, or not at all
	}
	for _, s := range p.GetScopes() {
		if s.GetHalted() != "" {
			return s.GetHalted()
		}
	}
	return ""
}

// stop ends a task's process gracefully: by its pipeline's stop, or by a signal where there is none.
func (l *lab) stop(ctx context.Context, t task, p *child.Process) error {
	if t.Epoch == 0 {
		return p.Signal(syscall.SIGTERM)
	}
	return l.desire(ctx, t.Name, unisinkv1.DesiredState_DESIRED_STATE_STOPPING)
}

// drain ends a pipeline for good: its open windows fire.
func (l *lab) drain(ctx context.Context, pipeline string) error {
	return l.desire(ctx, pipeline, unisinkv1.DesiredState_DESIRED_STATE_DRAINING)
}

func (l *lab) desire(ctx context.Context, pipeline string, state unisinkv1.DesiredState) error {
	_, err := l.client.Pipelines().SetDesired(ctx, &unisinkv1.SetDesiredRequest{Meta: l.client.NewMeta(), Name: pipeline, Desired: state})
	if err != nil {
		return fmt.Errorf("end the pipeline %s: %w", pipeline, err)
	}
	return nil
}

// tail is the end of a process's log.
func (l *lab) tail(name string) string { return group.Tail(filepath.Join(l.dir, name+".log")) }
