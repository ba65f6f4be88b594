package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// perPipeline is how many scopes a pipeline of a crew has at most.
const perPipeline = 100

// Config says what a crew of members does.
type Config struct {
	Client       *participant.Client
	Coordinators []string
	// Name tells the crew's pipelines from those of others.
	Name   string
	Scopes int
	// Every is the time between barriers of each scope.
	Every time.Duration
}

// Crew is members of many scopes, one each, in this process. Start makes one.
type Crew struct {
	Writers []*Writer

	members  []*member
	busy     atomic.Bool
	sent     atomic.Int64
	received atomic.Int64

	work sync.WaitGroup
	end  context.CancelFunc
}

// Start declares the pipelines and starts the members. They are idle until Work. Stop the crew also after an error.
func Start(ctx context.Context, c Config) (*Crew, error) {
	crew := &Crew{}
	ctx, crew.end = context.WithCancel(ctx)
	for first := 0; first < c.Scopes; first += perPipeline {
		name, shards := fmt.Sprintf("%s-%d", c.Name, first/perPipeline), min(perPipeline, c.Scopes-first)
		_, err := c.Client.Pipelines().PutPipeline(ctx, &unisinkv1.PutPipelineRequest{Meta: c.Client.NewMeta(), Pipeline: &unisinkv1.Pipeline{
			Name: name, Shards: uint32(shards), Desired: unisinkv1.DesiredState_DESIRED_STATE_RUNNING,
			Settings: &unisinkv1.PipelineSettings{EpochIntervalMs: c.Every.Milliseconds()},
			Members: []*unisinkv1.MemberSpec{{
				Name: "all", Source: true, Resources: []*unisinkv1.ResourceSpec{{Name: resource, Kind: kind}},
			}},
		}})
		if err != nil {
			return crew, fmt.Errorf("declare pipeline %s: %w", name, err)
		}
		for shard := range shards {
			if err := crew.add(ctx, c, name, shard); err != nil {
				return crew, err
			}
		}
	}
	return crew, nil
}

func (c *Crew) add(ctx context.Context, cfg Config, pipeline string, shard int) error {
	w := &Writer{Name: fmt.Sprintf("%s/%d", pipeline, shard)}
	task := &member{w: w, busy: &c.busy}
	m, err := participant.NewMember(participant.MemberConfig{
		Coordinators: cfg.Coordinators, Pipeline: pipeline, Shard: uint32(shard), Member: "all", Dial: c.dial,
		Resources: map[string]participant.Resource{resource: newCell(w.Name, w)},
		Inputs:    map[string]participant.Description{"in": {Kind: kind, Identity: w.Name}},
	}, task)
	if err != nil {
		return fmt.Errorf("member of %s: %w", w.Name, err)
	}
	c.Writers, c.members = append(c.Writers, w), append(c.members, task)
	c.work.Go(func() {
		if err := m.Run(ctx); ctx.Err() == nil {
			w.fail(fmt.Errorf("the member ended: %w", orNil(err)))
		}
	})
	return nil
}

func orNil(err error) error {
	if err == nil {
		return errors.New("without an error")
	}
	return err
}

// Work lets every member make epochs from now on, or no more.
func (c *Crew) Work(on bool) {
	c.busy.Store(on)
	for _, m := range c.members {
		m.work()
	}
}

// Started is how many members have been started in a generation.
func (c *Crew) Started() (n int) {
	for _, w := range c.Writers {
		if w.Begun() > 0 {
			n++
		}
	}
	return n
}

// Traffic is how many bytes the members have sent to coordinators and received from them.
func (c *Crew) Traffic() (sent, received int64) { return c.sent.Load(), c.received.Load() }

// Stop ends the members and waits for them.
func (c *Crew) Stop() {
	c.end()
	c.work.Wait()
}

func (c *Crew) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &counted{conn, c}, nil
}

// counted is a connection whose bytes are counted.
type counted struct {
	net.Conn
	c *Crew
}

// Read counts what comes.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.c.received.Add(int64(n))
	return n, err
}

// Write counts what goes.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.c.sent.Add(int64(n))
	return n, err
}
