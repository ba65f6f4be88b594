package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/unisink/unisink/participant"
)

// defaultMaxTimeout is what brokers allow when nobody set transaction.max.timeout.ms.
const defaultMaxTimeout = 15 * time.Minute

// capability is what a cluster can do, as probed once.
type capability struct {
	cluster string
	class   int
	// timeout of our transactions; never ends them when unbounded.
	timeout   time.Duration
	unbounded bool
	// markers: every broker takes a marker that says of which transaction version it is.
	markers bool
}

// probe asks the cluster who it is and what it can do. The time-out that the settings ask for
// must be one that the brokers allow (T2).
func probe(ctx context.Context, e endpoint, cl *kgo.Client, want time.Duration) (capability, error) {
	if err := e.reach(ctx, cl); err != nil {
		return capability{}, err
	}
	var c capability
	var err error
	if c.cluster, _, err = metadata(ctx, cl); err != nil {
		return capability{}, classed(fmt.Errorf("ask %s for its cluster id: %w", e, err))
	}
	neverReaped, err := c.versions(ctx, e, cl)
	if err != nil {
		return capability{}, err
	}
	most, err := maxTimeout(ctx, e, cl)
	if err != nil {
		return capability{}, err
	}
	if want > most {
		return capability{}, fmt.Errorf("%w: the sink's transaction timeout is %s, but the brokers at %s allow at most %s (transaction.max.timeout.ms): lower the first or raise the second", participant.ErrMisconfigured, want, e, most)
	}
	c.timeout = want
	if c.timeout == 0 {
		c.timeout = most
	}
	c.unbounded = neverReaped && c.timeout == Unbounded
	return c, nil
}

// versions finds the class of EndTxn, and whether the brokers are new enough (4.1) to leave
// transactions with the largest time-out alone for ever. While brokers are being upgraded the
// oldest counts: any of them can come to coordinate a transaction.
func (c *capability) versions(ctx context.Context, e endpoint, cl *kgo.Client) (neverReaped bool, err error) {
	ids, err := brokers(ctx, cl)
	if err != nil || len(ids) == 0 {
		return false, classed(fmt.Errorf("ask %s for its brokers: %w", e, err))
	}
	var least map[kmsg.Key]int16
	level := int16(math.MaxInt16)
	answers, failed := 0, error(nil)
	for _, id := range ids {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "unisink", "1"
		resp, err := req.RequestWith(ctx, cl.Broker(int(id)))
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			failed = errors.Join(failed, classed(fmt.Errorf("ask broker %d at %s for its versions: %w", id, e, err)))
			continue // it may be down; those that answer are enough
		}
		most := make(map[kmsg.Key]int16, len(resp.ApiKeys))
		for _, k := range resp.ApiKeys {
			most[kmsg.Key(k.ApiKey)] = k.MaxVersion + 1 // 0: not known at all
		}
		if answers++; answers == 1 {
			least = most
		}
		for k := range least {
			least[k] = min(least[k], most[k])
		}
		level = min(level, transactionLevel(resp))
	}
	if answers == 0 {
		return false, failed
	}
	if least[kmsg.DescribeTransactions] == 0 {
		return false, fmt.Errorf("%w: the brokers at %s cannot describe transactions; Kafka 3.0 is the oldest that can", participant.ErrMisconfigured, e)
	}
	knows := func(k kmsg.Key, version int16) bool { return least[k] > version }
	c.class = classOld
	if level >= 2 && knows(kmsg.EndTxn, 5) && knows(kmsg.Produce, 12) && knows(kmsg.TxnOffsetCommit, 5) {
		c.class = classNew
	}
	c.markers = knows(kmsg.WriteTxnMarkers, 2)
	return knows(kmsg.ListTransactions, 2), nil
}

// transactionLevel is the transaction version that the cluster has agreed on.
func transactionLevel(resp *kmsg.ApiVersionsResponse) int16 {
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			return f.MaxVersionLevel
		}
	}
	return 0
}

// maxTimeout is the longest transaction time-out that all brokers allow. Without the right to
// ask, Kafka's default is taken.
func maxTimeout(ctx context.Context, e endpoint, cl *kgo.Client) (time.Duration, error) {
	ids, err := brokers(ctx, cl)
	if err != nil || len(ids) == 0 {
		return 0, classed(fmt.Errorf("ask %s for its brokers: %w", e, err))
	}
	configs, err := kadm.NewClient(cl).DescribeBrokerConfigs(ctx, ids...)
	var denied *kadm.AuthError
	if errors.As(err, &denied) {
		return defaultMaxTimeout, nil
	}
	if err != nil && len(configs) == 0 {
		return 0, classed(fmt.Errorf("ask %s for transaction.max.timeout.ms: %w", e, err))
	}
	most := time.Duration(0)
	for _, r := range configs {
		allows := defaultMaxTimeout
		if ms, ok := number(r, "transaction.max.timeout.ms"); ok && ms > 0 && ms <= math.MaxInt32 {
			allows = time.Duration(ms) * time.Millisecond
		}
		if most == 0 || allows < most {
			most = allows
		}
	}
	if most == 0 {
		return defaultMaxTimeout, nil
	}
	return most, nil
}

// number reads one numeric setting.
func number(r kadm.ResourceConfig, key string) (int64, bool) {
	for _, c := range r.Configs {
		if c.Key == key && c.Value != nil {
			n, err := strconv.ParseInt(*c.Value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// text reads one setting.
func text(r kadm.ResourceConfig, key string) string {
	for _, c := range r.Configs {
		if c.Key == key && c.Value != nil {
			return *c.Value
		}
	}
	return ""
}

// pinned caps the versions of requests whose meaning changes with them: the class of EndTxn, and
// those that newer versions address by topic id alone.
func pinned(class int) *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.OffsetCommit), 9)
	v.SetMaxKeyVersion(int16(kmsg.OffsetFetch), 9)
	v.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), int16(class))
	v.SetMaxKeyVersion(int16(kmsg.EndTxn), int16(class))
	return v
}

// retention is how long a topic keeps a record; 0 for ever.
type retention struct {
	keeps      time.Duration
	appendTime bool // the broker's clock stamps the records, not the writer's
	at         time.Time
}

// retentionAge is how long an answer about retention is believed.
const retentionAge = time.Minute

// askRetention reads it for topics.
func askRetention(ctx context.Context, e endpoint, cl *kgo.Client, topics ...string) (map[string]retention, error) {
	configs, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, topics...)
	var denied *kadm.AuthError
	if errors.As(err, &denied) {
		err = nil
	}
	if err != nil {
		return nil, classed(fmt.Errorf("ask %s for the retention of its topics: %w", e, err))
	}
	out := make(map[string]retention, len(topics))
	for _, r := range configs {
		if errors.Is(r.Err, kerr.TopicAuthorizationFailed) {
			out[r.Name] = retention{at: time.Now()} // unknown; the time-out still bounds the branch
			continue
		}
		if r.Err != nil {
			return nil, classed(fmt.Errorf("ask %s for the retention of topic %q: %w", e, r.Name, r.Err))
		}
		ret := retention{at: time.Now(), appendTime: text(r, "message.timestamp.type") == "LogAppendTime"}
		if ms, ok := number(r, "retention.ms"); ok && ms >= 0 && text(r, "cleanup.policy") != "compact" {
			ret.keeps = time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		}
		out[r.Name] = ret
	}
	return out, nil
}
