package participant

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// ClientConfig is how a client reaches the coordinator.
type ClientConfig struct {
	// Coordinators are the client addresses of the coordinator nodes, host:port. One is enough to
	// begin with; more are learnt.
	Coordinators []string
	// TLS of connections; nil means plain text.
	TLS *tls.Config
	// TLSFrom, when not nil, is asked for each new connection in the place of TLS; see TLSFiles.
	TLSFrom func() *tls.Config
	// Logger; default discards.
	Logger *slog.Logger
	// Actor is who asks, for the audit trail; default "client".
	Actor string
	// Patience bounds how long a call looks for a coordinator that answers; default 10s. The call's
	// context bounds it too.
	Patience time.Duration
	// Dial replaces the network, for tests.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Client runs transactions by hand and asks the coordinator questions. It is safe for concurrent
// use; Close ends its connections.
type Client struct {
	cfg    ClientConfig
	router *route.Router
	log    *slog.Logger

	reports *reports
	ids     *ids
	born    time.Time
}

// NewClient makes a client. It connects when it is used.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Actor == "" {
		cfg.Actor = "client"
	}
	if cfg.Patience == 0 {
		cfg.Patience = 10 * time.Second
	}
	router, err := route.NewRouter(cfg.Coordinators,
		route.WithTLS(cfg.TLS), route.WithTLSFrom(cfg.TLSFrom), route.WithDial(cfg.Dial), route.WithPatience(cfg.Patience))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c := &Client{cfg: cfg, router: router, log: cfg.Logger, ids: newIDs(), born: time.Now()}
	c.reports = newReports(cfg.Patience, c.tell)
	return c, nil
}

// Close waits until the proofs of transactions that have ended are reported, for Patience at most, and ends the
// client's connections. What could not be reported is found and told by the next Sweep.
func (c *Client) Close() error {
	c.reports.wait()
	return c.router.Close()
}

// Router is the way to the coordinator. Calls through it follow the leader and are tried again
// where that is safe; those that change something carry a Meta from NewMeta.
func (c *Client) Router() *route.Router { return c.router }

// Pipelines is the raw service, through Router.
func (c *Client) Pipelines() unisinkv1.PipelinesClient { return unisinkv1.NewPipelinesClient(c.router) }

// Transactions is the raw service, through Router.
func (c *Client) Transactions() unisinkv1.TransactionsClient {
	return unisinkv1.NewTransactionsClient(c.router)
}

// Resolution is the raw service of resolvers and operators, through Router.
func (c *Client) Resolution() unisinkv1.ResolutionClient {
	return unisinkv1.NewResolutionClient(c.router)
}

// Audit is the raw service, through Router.
func (c *Client) Audit() unisinkv1.AuditClient { return unisinkv1.NewAuditClient(c.router) }

// Events is the raw service, through Router. A stream that breaks is the caller's to open again.
func (c *Client) Events() unisinkv1.EventsClient { return unisinkv1.NewEventsClient(c.router) }

// Cluster is the raw service, through Router: whichever node answers. To ask one node give the
// client that address alone.
func (c *Client) Cluster() unisinkv1.ClusterClient { return unisinkv1.NewClusterClient(c.router) }

// Namespace of the coordinator group, which stands in the names of branches. A node that has just
// started and not read its log yet is asked again.
func (c *Client) Namespace(ctx context.Context) (Namespace, error) {
	begun, pause := time.Now(), route.NewBackOff()
	for {
		resp, err := c.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
		if err != nil {
			return Namespace{}, fmt.Errorf("ask for the namespace: %w", refusal(err))
		}
		if resp.GetNamespace() != "" {
			return Namespace{Name: resp.GetNamespace(), Incarnation: resp.GetIncarnation()}, nil
		}
		if resp.GetState() == notBootstrapped {
			return Namespace{}, fmt.Errorf("ask for the namespace: %w: coordinator node %s is not bootstrapped", ErrRefused, resp.GetNode())
		}
		wait := pause.NextBackOff()
		if time.Since(begun)+wait > c.cfg.Patience || !route.Sleep(ctx, wait) {
			return Namespace{}, fmt.Errorf("ask for the namespace: %w: coordinator node %s has not read its log yet", ErrUnreachable, resp.GetNode())
		}
	}
}

// notBootstrapped is the state of a node that belongs to no group.
const notBootstrapped = "not bootstrapped"

// NewMeta is the Meta of one intended change, with a new request id; repeats of the same change
// carry the same one.
func (c *Client) NewMeta() *unisinkv1.Meta {
	return &unisinkv1.Meta{RequestId: uuid.NewString(), Actor: c.cfg.Actor}
}

// NewTxnID makes the id of a transaction run by hand: a UUIDv7, which carries its time by this
// process's clock. An id is for one attempt: a transaction that was aborted needs a new one. It is
// used soon: after an hour (the coordinator's keep_for) an id that nobody has used is too old.
func NewTxnID() (string, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("draw a transaction id: %w", err)
	}
	// By hand, since the library's NewV7 never goes back in time: after a clock that was ahead has
	// been corrected it would go on drawing ids from the future, which the coordinator refuses.
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	id[6] = id[6]&0x0f | 0x70
	return id.String(), nil
}

// NewTxnID is the function of that name, and saves RunTxn a call: an id that this client has drawn within the last five
// seconds, and not used, is not asked about before its branches are prepared, if the client was told a decision as lately
// and has met no silence since. An id that is meant for another process too is drawn with the function.
func (c *Client) NewTxnID() (string, error) {
	id, err := NewTxnID()
	if err == nil {
		c.ids.draw(id, c.now())
	}
	return id, err
}

func (c *Client) now() moment {
	now := time.Now()
	return moment{wall: now.Round(0), on: now.Sub(c.born)}
}

// Outcome of a transaction.
type Outcome uint8

const (
	outcomeUnset Outcome = iota
	OutcomePending
	OutcomeCommitted
	OutcomeAborted
)

func (o Outcome) String() string {
	switch o {
	case OutcomePending:
		return "pending"
	case OutcomeCommitted:
		return "committed"
	case OutcomeAborted:
		return "aborted"
	case outcomeUnset:
	}
	return "unknown"
}

// HandBranch is one resource's share of a transaction run by hand.
type HandBranch struct {
	Resource string
	Handle   Handle
}

// Begin announces a transaction before its branches are prepared: undecided when timeout has
// passed (0: the coordinator's by_hand_timeout), it is aborted, and what was prepared is rolled back
// by whoever can. It returns the deadline on the coordinator's clock. A repeat gives the same answer.
func (c *Client) Begin(ctx context.Context, txn string, resources []string, timeout time.Duration) (time.Time, error) {
	c.ids.use(txn, c.now())
	branches := make([]*unisinkv1.HandBranch, 0, len(resources))
	for _, r := range resources {
		branches = append(branches, &unisinkv1.HandBranch{Resource: r})
	}
	resp, err := c.Transactions().Begin(ctx, &unisinkv1.BeginRequest{
		Meta: c.NewMeta(), Txn: txn, Branches: branches, TimeoutMs: timeout.Milliseconds(),
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("begin transaction %s: %w", txn, unknownIfCut(ctx, err))
	}
	return time.UnixMilli(resp.GetDeadlineUnixMs()), nil
}

// Commit asks for the decision: committed everywhere, with every branch prepared by the caller. The
// answer is in the log. It is OutcomeAborted when the deadline had passed or somebody asked for the
// outcome before; repeating the call gives the same answer. When ctx ends first the error wraps
// ErrOutcomeUnknown: call Commit again, or Outcome, which aborts what was not decided.
func (c *Client) Commit(ctx context.Context, txn string, branches []HandBranch) (Outcome, error) {
	c.ids.use(txn, c.now())
	req := &unisinkv1.CommitRequest{Meta: c.NewMeta(), Txn: txn}
	for _, b := range branches {
		req.Branches = append(req.Branches, &unisinkv1.HandBranch{Resource: b.Resource, Handle: handleToWire(b.Handle)})
	}
	resp, err := c.Transactions().Commit(ctx, req)
	if err = unknownIfCut(ctx, err); errors.Is(err, ErrContradicts) {
		// Aborted before, or committed with other branches. It is known, so asking changes nothing.
		if out, asked := c.Outcome(ctx, txn); asked != nil || out == OutcomeAborted {
			return out, asked
		}
	}
	if err != nil {
		return outcomeUnset, fmt.Errorf("commit transaction %s: %w", txn, err)
	}
	return decided("commit", txn, resp.GetOutcome())
}

// Outcome asks what became of a transaction. One that nobody knows is aborted by the question, for
// good: a commit that comes later is refused. The coordinator answers only so many questions about
// unknown transactions to one caller; Outcome waits for its turn as it is told to, until ctx ends.
// ErrTooOld: nothing is recorded of it any more, and no verdict is given. ErrRefused: the id is none,
// or lies more than a minute ahead of the coordinator's clock.
func (c *Client) Outcome(ctx context.Context, txn string) (Outcome, error) {
	c.ids.use(txn, c.now())
	req := &unisinkv1.OutcomeRequest{Meta: c.NewMeta(), Txn: txn}
	for {
		resp, err := c.Transactions().Outcome(ctx, req)
		if err == nil {
			return decided("ask for", txn, resp.GetOutcome())
		}
		if wait, told := grpcerr.RetryAfter(err); told && ctx.Err() == nil && route.Sleep(ctx, wait) {
			continue
		}
		return outcomeUnset, fmt.Errorf("ask for the outcome of transaction %s: %w", txn, unknownIfCut(ctx, err))
	}
}

// Abort decides against an undecided transaction. The answer may be OutcomeCommitted: it was
// decided before, and stays so.
func (c *Client) Abort(ctx context.Context, txn, why string) (Outcome, error) {
	c.ids.use(txn, c.now())
	resp, err := c.Transactions().Abort(ctx, &unisinkv1.AbortRequest{Meta: c.NewMeta(), Txn: txn, Why: why})
	if err != nil {
		err = unknownIfCut(ctx, err)
		if errors.Is(err, ErrContradicts) {
			return OutcomeCommitted, nil
		}
		return outcomeUnset, fmt.Errorf("abort transaction %s: %w", txn, err)
	}
	return decided("abort", txn, resp.GetOutcome())
}

// Resolve reports the proof of one branch.
func (c *Client) Resolve(ctx context.Context, txn, resource string, proof Proof) error {
	_, err := c.Transactions().Resolve(ctx, &unisinkv1.ResolveRequest{
		Meta: c.NewMeta(), Txn: txn, Resource: resource, Proof: proofToWire(proof),
	})
	if err != nil {
		return fmt.Errorf("report the proof of %s in transaction %s: %w", resource, txn, unknownIfCut(ctx, err))
	}
	return nil
}

// decided turns the wire's outcome into ours; an answer without one is a broken coordinator.
func decided(what, txn string, o unisinkv1.Outcome) (Outcome, error) {
	out := outcomeFromWire(o)
	if out == outcomeUnset {
		return outcomeUnset, fmt.Errorf("%s transaction %s: %w: the answer holds no outcome", what, txn, ErrBug)
	}
	return out, nil
}
