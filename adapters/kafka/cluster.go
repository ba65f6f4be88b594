package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/participant"
)

// connectWait is how long a first contact may take before it counts as no answer.
const connectWait = 10 * time.Second

// endpoint is how a cluster is reached; every client is made from it.
type endpoint struct {
	brokers []string
	id      string
	options []kgo.Opt
	secured bool // TLS or SASL are set
	log     *slog.Logger
}

// newEndpoint reads the files that the settings name, and dials nothing. The caller has checked
// the settings.
func newEndpoint(brokers []string, clientID string, security Security, options []kgo.Opt, log *slog.Logger) (endpoint, error) {
	secure, err := security.options()
	if err != nil {
		return endpoint{}, fmt.Errorf("kafka client for %s: %w: %w", strings.Join(brokers, ","), participant.ErrMisconfigured, err)
	}
	if clientID == "" {
		clientID = "unisink"
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return endpoint{brokers: brokers, id: clientID, options: append(secure, options...), secured: len(secure) > 0, log: log}, nil
}

// String names the cluster for people.
func (e endpoint) String() string { return strings.Join(e.brokers, ",") }

// client makes a client; it dials when it is first used. The caller closes it.
func (e endpoint) client(opts ...kgo.Opt) (*kgo.Client, error) {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(e.brokers...),
		kgo.ClientID(e.id),
		kgo.WithLogger(library{e.log}),
		// A fetch or produce that waits for new metadata waits a fraction of a short epoch.
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.ConcurrentTransactionsBackoff(2 * time.Millisecond),
		// A broker that is back is found at once, not when the library's own waits of 5 s are over. A
		// request is given up by its time (30 s), as before, not by the number of its tries.
		kgo.RetryBackoffFn(retryWait),
		kgo.RequestRetries(int(30 * time.Second / retryLeast)),
	}, opts...)
	cl, err := kgo.NewClient(append(all, e.options...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client for %s: %w: %w", e, participant.ErrMisconfigured, err)
	}
	return cl, nil
}

// retryLeast and retryMost are the shortest and the longest wait before a request is sent again.
const (
	retryLeast = 25 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)

// retryWait is how long to wait after so many failures: it doubles up to retryMost, and is
// scattered over its upper half, so that clients do not come back all at once.
func retryWait(fails int) time.Duration {
	most := min(2*retryLeast<<min(max(fails-1, 0), 10), retryMost)
	return most/2 + rand.N(most/2) //nolint:gosec // it spreads load, no more
}

// reach makes sure that a broker answers, and says in one sentence when none does.
func (e endpoint) reach(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		check := "check the address, and that the broker runs"
		if e.secured { // some brokers close the connection without a word
			check = "check the address, that the broker runs, and the user, secret and certificates that it is given"
		}
		return classed(fmt.Errorf("no Kafka broker answers at %s: %s: %w", e, check, err))
	}
	return nil
}

// topicInfo is what a cluster says of a topic.
type topicInfo struct {
	id    [16]byte
	parts []partInfo // in order
	err   error
}

// partInfo is what it says of a partition.
type partInfo struct {
	number int32
	leader int32 // -1: none
}

// metadata asks, past every cache, for topics by name (none: no topic at all), and for the
// cluster's id.
func metadata(ctx context.Context, cl kmsg.Requestor, names ...string) (cluster string, topics map[string]topicInfo, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return "", nil, err
	}
	if resp.ClusterID != nil {
		cluster = *resp.ClusterID
	}
	topics = make(map[string]topicInfo, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		info := topicInfo{id: t.TopicID, err: kerr.ErrorForCode(t.ErrorCode)}
		for _, p := range t.Partitions {
			info.parts = append(info.parts, partInfo{p.Partition, p.Leader})
		}
		slices.SortFunc(info.parts, func(a, b partInfo) int { return int(a.number) - int(b.number) })
		topics[*t.Topic] = info
	}
	return cluster, topics, nil
}

// brokers lists the numbers of the brokers that are there now.
func brokers(ctx context.Context, cl kmsg.Requestor) ([]int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(resp.Brokers))
	for i, b := range resp.Brokers {
		out[i] = b.NodeID
	}
	return out, nil
}

// missing reports whether a topic is not there.
func (t topicInfo) missing() bool {
	return errors.Is(t.err, kerr.UnknownTopicOrPartition) || errors.Is(t.err, kerr.UnknownTopicID)
}

// topics asks for topics and their partitions, and says in one sentence which topic is missing. A
// missing one is asked for again for a moment: a topic that was just made is not known everywhere.
func (e endpoint) topics(ctx context.Context, cl *kgo.Client, names ...string) (map[string]topicInfo, error) {
	wait := slow()
	for tries := 1; ; tries++ {
		_, topics, err := metadata(ctx, cl, names...)
		if err != nil {
			return nil, classed(fmt.Errorf("ask %s for its topics: %w", e, err))
		}
		missing := ""
		for _, name := range names {
			t, ok := topics[name]
			switch {
			case !ok || t.missing():
				missing = name
			case t.err != nil:
				return nil, classed(fmt.Errorf("topic %q at %s: %w", name, e, t.err))
			}
		}
		if missing == "" {
			return topics, nil
		}
		if tries == missingTries {
			return nil, fmt.Errorf("%w: topic %q does not exist at %s; create it, or correct the name", participant.ErrMisconfigured, missing, e)
		}
		if err := wait.wait(ctx); err != nil {
			return nil, fmt.Errorf("ask %s for topic %q: %w", e, missing, err)
		}
	}
}

// missingTries make about a third of a second.
const missingTries = 5

// library hands what the client library logs to ours, one level lower: what it calls an error
// is mostly a broker that will be there again in a moment.
type library struct{ log *slog.Logger }

// Level is the most that the library has to say.
func (l library) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	if l.log.Enabled(context.Background(), slog.LevelWarn) {
		return kgo.LogLevelError
	}
	return kgo.LogLevelNone
}

// Log writes one line.
func (l library) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	at := slog.LevelDebug
	if level == kgo.LogLevelError {
		at = slog.LevelWarn
	}
	l.log.Log(context.Background(), at, "kafka client", append([]any{slog.String("said", msg)}, keyvals...)...)
}
