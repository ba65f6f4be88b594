package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// Sink is Kafka as a participant.Resource. Everything that ends a transaction goes by its
// handle through clients that are not transactional themselves, whether the process that wrote
// it is this one or is long gone.
type Sink struct {
	cfg       SinkConfig
	at        endpoint
	producing []kgo.Opt
	chunks    sync.Pool     // of *chunk
	opening   chan struct{} // holds one token; taken by Open, which may take long

	mu       sync.Mutex // guards what follows; never held across I/O
	known    *capability
	finisher map[int]*kgo.Client // by EndTxn class, made when first needed
	tenure   *tenure             // what Open opened
	retained map[string]retention
	seen     keys // where witnesses are, once known
	closed   bool

	// reuseUnresolved takes away the guard of the slots; only a test sets it, to show what it is for.
	reuseUnresolved bool
	// noRepair leaves torn transactions as they are; only a test sets it, to show what the repair is for.
	noRepair bool
}

// NewSink checks the settings; nothing is dialled before it is used.
func NewSink(cfg SinkConfig) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	producing, err := cfg.producing()
	if err != nil {
		return nil, err
	}
	at, err := newEndpoint(cfg.Brokers, cfg.ClientID, cfg.Security, cfg.Options, cfg.Logger)
	if err != nil {
		return nil, err
	}
	s := &Sink{
		cfg:       cfg,
		at:        at,
		producing: producing,
		opening:   make(chan struct{}, 1),
		finisher:  make(map[int]*kgo.Client),
		retained:  make(map[string]retention),
	}
	s.chunks.New = func() any { return newChunk() }
	s.opening <- struct{}{}
	return s, nil
}

// log is where the sink says what healed.
func (s *Sink) log() *slog.Logger { return s.at.log }

// client returns the shared client whose request versions are pinned to a class of EndTxn.
func (s *Sink) client(class int) (*kgo.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("kafka sink at %s: closed", s.at)
	}
	if cl := s.finisher[class]; cl != nil {
		return cl, nil
	}
	cl, err := s.at.client(kgo.MaxVersions(pinned(class))) // does not dial
	if err != nil {
		return nil, err
	}
	s.finisher[class] = cl
	return cl, nil
}

// probed returns what the cluster can do, asking once.
func (s *Sink) probed(ctx context.Context) (capability, error) {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	cl, err := s.client(classNew)
	if err != nil {
		return capability{}, err
	}
	c, err := probe(ctx, s.at, cl, s.cfg.TransactionTimeout)
	if err != nil {
		return capability{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = &c
	return c, nil
}

// current is what Open opened, or nil.
func (s *Sink) current() *tenure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenure
}

// Describe asks the cluster who it is and what it can do.
func (s *Sink) Describe(ctx context.Context) (participant.Description, error) {
	c, err := s.probed(ctx)
	if err != nil {
		return participant.Description{}, err
	}
	what := "transactions"
	if s.cfg.Topic != "" {
		what = "topic " + s.cfg.Topic
	}
	return participant.Description{
		Kind:     Kind,
		Identity: c.cluster,
		Text:     fmt.Sprintf("%s at %s", what, s.at),
		CanList:  true,
		Bounded:  !c.unbounded,
	}, nil
}

// Open writes the generation where processes of older ones look before they vote, and fences the
// older transactional ids that hold nothing. Ids with an open transaction are not touched here:
// to initialise one is to abort it, and it may be decided. They are ended by handle and fenced
// after that.
func (s *Sink) Open(ctx context.Context, o participant.Opening) error {
	select {
	case <-s.opening:
		defer func() { s.opening <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	name, err := scoped(o)
	if err != nil {
		return err
	}
	old := s.current()
	if old != nil && old.group == groupOf(name) {
		if old.name.Generation == name.Generation {
			return old.standing(ctx)
		}
		if old.name.Generation > name.Generation {
			return fmt.Errorf("%w: generation %d of %s is opened here already, %d is older", participant.ErrFenced, old.name.Generation, old.group, name.Generation)
		}
	}
	c, err := s.probed(ctx)
	if err != nil {
		return err
	}
	cl, err := s.client(c.class)
	if err != nil {
		return err
	}
	if s.cfg.Topic != "" {
		if _, err := s.at.topics(ctx, cl, s.cfg.Topic); err != nil {
			return err
		}
	}
	keys, err := findKeys(ctx, s.at, cl, s.cfg.WitnessTopic, groupOf(name))
	if err != nil {
		return err
	}
	t := newTenure(s, c, cl, o, name, keys)
	if err := t.raiseFence(ctx); err != nil {
		return err
	}
	if old != nil {
		old.end(ctx)
	}
	if err := t.fenceIdle(ctx, false); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("kafka sink at %s: closed", s.at)
	}
	s.tenure = t
	return nil
}

// scoped reads an opening into a name without an epoch.
func scoped(o participant.Opening) (participant.BranchName, error) {
	bad := func(why string) (participant.BranchName, error) {
		return participant.BranchName{}, fmt.Errorf("open kafka sink %q: %w: %s", o.Resource, participant.ErrBug, why)
	}
	pipeline, number, ok := strings.Cut(o.Scope, "/")
	shard, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil || strconv.FormatUint(shard, 10) != number {
		return bad(fmt.Sprintf("scope %q is not pipeline/shard", o.Scope))
	}
	n := participant.BranchName{
		Namespace: o.Namespace, Pipeline: pipeline, Shard: uint32(shard),
		Member: o.Member, Resource: o.Resource, Generation: o.Generation,
	}
	if _, ours := parseSlotID(n.String()); !ours {
		return bad(fmt.Sprintf("%q would be no name that can be parsed: its parts must not be empty nor hold a '.'", n))
	}
	return n, nil
}

// Begin takes a slot for the branch, and waits while every slot holds a branch that is not
// resolved. The first Begin completes the fence; apart from that nothing is sent before the first
// record. The result is a *Branch.
func (s *Sink) Begin(ctx context.Context, name participant.BranchName) (participant.Branch, error) {
	t := s.current()
	if t == nil {
		return nil, fmt.Errorf("begin %s: %w: the kafka sink is not open", name, participant.ErrBug)
	}
	if err := t.accepts(name); err != nil {
		return nil, err
	}
	if err := t.fenceRest(ctx); err != nil {
		return nil, err
	}
	// A repeat, its first answer having been lost, takes the place of the first, whose slot nobody
	// else would ever give back.
	if first := t.writing(name); first != nil {
		if err := first.Discard(ctx); err != nil {
			return nil, fmt.Errorf("begin %s again: %w", name, err)
		}
	}
	slot, err := t.take(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin %s: %w", name, err)
	}
	return newBranch(t, slot, name), nil
}

// List finds every transaction of the namespace that the cluster has not finished, by whatever
// process and generation. What is only being written cannot be told from what is prepared.
func (s *Sink) List(ctx context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	c, err := s.probed(ctx)
	if err != nil {
		return nil, err
	}
	cl, err := s.client(c.class)
	if err != nil {
		return nil, err
	}
	found, err := listTransactions(ctx, cl, unfinishedStates(), func(n participant.BranchName) bool {
		return (n.Namespace == ns || mutant.On("kafka/this-namespace")) && n.Generation > 0
	})
	if err != nil {
		return nil, classed(fmt.Errorf("list transactions at %s: %w", s.at, err))
	}
	k, err := s.keysSeen(ctx, cl)
	if err != nil {
		return nil, err
	}
	var out []participant.Listed
	for _, t := range found {
		if !unfinished(t.State) {
			continue // ended between listing and describing
		}
		h, err := listedHandle(c, k, t)
		if err != nil {
			return nil, err
		}
		name := t.Name
		name.N = 0
		out = append(out, participant.Listed{Handle: h, Name: name, Since: t.Since})
	}
	return out, nil
}

// listedHandle names a transaction that was found, as far as the cluster shows it: good enough to
// end it, and to prove how it ended.
func listedHandle(c capability, k keys, t Transaction) (participant.Handle, error) {
	b := &body{Cluster: c.cluster, TxnID: t.ID, PID: t.PID, Epoch: t.Epoch, Class: c.class}
	if c.class == classNew && t.State != stateOngoing {
		b.Epoch-- // raised when its end began
	}
	for _, topic := range slices.Sorted(maps.Keys(t.Partitions)) {
		if topic == offsetsTopic {
			for _, p := range t.Partitions[topic] {
				b.Offsets = &p
			}
			continue
		}
		sp := span{Topic: topic}
		for _, p := range t.Partitions[topic] {
			sp.Parts = append(sp.Parts, []int64{int64(p)})
		}
		b.Topics = append(b.Topics, sp)
	}
	if k.parts > 1 {
		key := k.slotKey(groupOf(t.Name), t.Name.Generation, int(t.Name.N))
		b.Witness = &key
	}
	h, err := b.encode(t.Name.Resource)
	if err != nil {
		b.Topics = nil // too many to name: it can still be ended, and proven by its coordinator
		h, err = b.encode(t.Name.Resource)
	}
	return h, err
}

// keysSeen finds, once, the topic whose partitions are the keys of witnesses; it makes none.
func (s *Sink) keysSeen(ctx context.Context, cl *kgo.Client) (keys, error) {
	s.mu.Lock()
	k := s.seen
	s.mu.Unlock()
	if k.parts > 0 {
		return k, nil
	}
	k, err := seeKeys(ctx, s.at, cl, s.cfg.WitnessTopic)
	if err != nil {
		return keys{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = k
	return k, nil
}

// Close drops what is not prepared and ends every client. Prepared branches stay prepared: no
// client of Kafka ends a transaction by going away.
func (s *Sink) Close() error {
	s.mu.Lock()
	t, clients := s.tenure, s.finisher
	s.closed, s.tenure, s.finisher = true, nil, nil
	s.mu.Unlock()
	if t != nil {
		ctx, cancel := context.WithTimeout(context.Background(), dropWait)
		defer cancel()
		t.end(ctx)
	}
	for _, cl := range clients {
		cl.Close()
	}
	return nil
}
