package route

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/internal/grpcerr"
)

var (
	// ErrUnreachable: no coordinator answered, or the one that was asked went silent. Whether the
	// call had an effect is unknown; every call of unisink is safe to repeat.
	ErrUnreachable = errors.New("no coordinator answered")
	// ErrNotLeader: the node that answered does not lead, or no node does at the moment.
	ErrNotLeader = errors.New("not the leader")
	// ErrDistrusted: the certificate that the connection began with does not count any more. It stands
	// beside ErrUnreachable, and the next call connects anew, with the certificate as it is then.
	ErrDistrusted = errors.New("certificate not trusted any more")
	// ErrNoGroup: every node that is known has answered that it belongs to no group yet. It stands
	// beside ErrNotLeader.
	ErrNoGroup = errors.New("no coordinator group")
)

// noGroupError is ErrNoGroup, and ErrNotLeader, with who was asked.
type noGroupError struct{ nodes []string }

func (e *noGroupError) Error() string {
	return fmt.Sprintf("coordinator %s belongs to no group yet; run `unisink cluster bootstrap` once", strings.Join(e.nodes, ", "))
}

// Unwrap gives both sentinels.
func (e *noGroupError) Unwrap() []error { return []error{ErrNoGroup, ErrNotLeader} }

// NotLeaderError is ErrNotLeader with the address that the node gave, "" when it knows none.
type NotLeaderError struct {
	Node    string // who answered
	Leader  string
	NoGroup bool // the node belongs to no group yet
	Err     error
}

func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return fmt.Sprintf("coordinator %s does not lead and knows no leader", e.Node)
	}
	return fmt.Sprintf("coordinator %s does not lead; it names %s", e.Node, e.Leader)
}

// Unwrap gives ErrNotLeader and the status that was received.
func (e *NotLeaderError) Unwrap() []error { return []error{ErrNotLeader, e.Err} }

// Retryable reports whether the same call may safely go to another node, or to the same one later.
func Retryable(err error) bool {
	return errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnreachable)
}

// Classify turns the error of a gRPC call to a node into one that Retryable understands. Errors
// that are answers, and the end of the caller's own context, pass unchanged. It is meant for the
// error of a call whose ctx is the caller's; use it once, at the edge.
func Classify(ctx context.Context, node string, err error) error {
	if err == nil || Retryable(err) {
		return err
	}
	reason, meta := grpcerr.Reason(err)
	switch {
	case reason == grpcerr.NotLeader:
		return &NotLeaderError{Node: node, Leader: meta[grpcerr.MetaLeader], NoGroup: meta[grpcerr.MetaNoGroup] != "", Err: err}
	case reason == grpcerr.OutcomeUnknown:
		return fmt.Errorf("%w: %s could not tell the outcome: %w", ErrUnreachable, node, err)
	case reason == grpcerr.Distrusted:
		return fmt.Errorf("%w: %s: %w: %w", ErrUnreachable, node, ErrDistrusted, err)
	case reason != "":
		return err
	}
	switch status.Code(err) {
	case codes.Unavailable:
		if t := distrust(node, err); t != nil {
			return t
		}
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, node, err)
	case codes.DeadlineExceeded, codes.Canceled:
		if ctx.Err() == nil { // the node gave up or the attempt's own limit passed, not the caller
			return fmt.Errorf("%w: %s was silent: %w", ErrUnreachable, node, err)
		}
	case codes.Unknown:
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("%w: %s was silent: %w", ErrUnreachable, node, err)
		}
	}
	return err
}

// Answers collects what each address said, newest per address, in the order first asked.
type Answers struct {
	order []string
	said  map[string]error
}

// Add notes what addr said last. That there is no trust stands until there is an answer: a connection that
// is cut for it is often heard of as nothing but cut.
func (f *Answers) Add(addr string, err error) {
	if f.said == nil {
		f.said = map[string]error{}
	}
	old, ok := f.said[addr]
	if !ok {
		f.order = append(f.order, addr)
	}
	if foreign(old) && errors.Is(err, ErrUnreachable) && !foreign(err) {
		return
	}
	f.said[addr] = err
}

func foreign(err error) bool {
	return errors.Is(err, ErrForeignNode) || errors.Is(err, ErrForeignCaller)
}

// noGroup reports whether each of these nodes said last that it belongs to no group.
func (f *Answers) noGroup(nodes []string) bool {
	for _, addr := range nodes {
		var nl *NotLeaderError
		if !errors.As(f.said[addr], &nl) || !nl.NoGroup {
			return false
		}
	}
	return true
}

// Err is the one sentence for people, wrapping ErrUnreachable or, when some node answered, ErrNotLeader. Where
// nobody answered and there was no trust, that is the sentence, whatever else is down.
func (f *Answers) Err() error {
	var distrusted error
	answered, text := false, make([]string, 0, len(f.order))
	for _, addr := range f.order {
		err := f.said[addr]
		answered = answered || errors.Is(err, ErrNotLeader)
		if foreign(err) && distrusted == nil {
			distrusted = err
		}
		text = append(text, addr+" ("+plain(err)+")")
	}
	if distrusted != nil && !answered {
		return distrusted
	}
	if answered {
		return fmt.Errorf("%w: no coordinator leads at the moment; asked %s", ErrNotLeader, strings.Join(text, ", "))
	}
	return fmt.Errorf("%w at %s; check the addresses and that the nodes are running", ErrUnreachable, strings.Join(text, ", "))
}

// plain is the innermost text of a refused call, without the layers that people need not read.
func plain(err error) string {
	var nl *NotLeaderError
	if errors.As(err, &nl) {
		if nl.Leader != "" {
			return "names " + nl.Leader
		}
		// Why it knows none is the node's to say: it may not have been bootstrapped.
		if st, ok := status.FromError(nl.Err); ok && st.Message() != "" {
			return st.Message()
		}
		return "knows no leader"
	}
	text := innermost(err)
	if strings.HasPrefix(text, "error reading server preface: ") {
		text = "it answers and does not speak our protocol in plain text; does it want TLS?"
	}
	return text
}

// innermost is the text of a status without gRPC's layers.
func innermost(err error) string {
	var st interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &st) {
		return err.Error()
	}
	text := st.GRPCStatus().Message()
	if _, quoted, ok := strings.Cut(text, "connection error: desc = "); ok {
		if s, err := strconv.Unquote(quoted); err == nil {
			text = s
		}
	}
	for _, layer := range []string{"Error while dialing: ", "authentication handshake failed: "} {
		if _, inner, ok := strings.Cut(text, layer); ok {
			text = inner
		}
	}
	return text
}
