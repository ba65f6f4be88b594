package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/internal/finding"
	"github.com/unisink/unisink/participant"
)

const (
	theCluster = "the cluster"
	// commitBudget is what a commit must be given at least; see the coordinator's setting of the same name.
	commitBudget = 10 * time.Second
	// leastTimeout leaves an epoch and the budget room.
	leastTimeout = 3 * commitBudget
	// embeddedSetting is one that the broker of package devkafka shows.
	embeddedSetting = "unisink.embedded"
)

// versions looks at what the brokers can do.
func (d *doctor) versions(ctx context.Context) []Finding {
	f := Finding{Subject: theCluster, Setting: "transaction.version", Wanted: "2"}
	c, err := probe(ctx, d.at, d.cl, 0)
	switch {
	case errors.Is(err, participant.ErrMisconfigured):
		return []Finding{{
			Severity: Wrong, Subject: theCluster, Setting: "version of Kafka", Found: "older than 3.0", Wanted: "4.0.1 or newer",
			Why: "its brokers cannot describe transactions, so nothing can be proven",
		}}
	case err != nil:
		return []Finding{finding.Unknown(f.Subject, f.Setting, f.Wanted, err)}
	}
	d.unbounded = c.unbounded // with the time-out that the brokers allow; see maxTimeout
	f.Found = "1"
	if c.class == classNew {
		f.Found = "2"
	}
	f.Why = "with version 1 every transaction is initialised anew, and a torn commit can be seen but not mended"
	return []Finding{finding.Judged(c.class == classNew, Warning, f)}
}

// brokerSetting is one that is looked at on every broker.
type brokerSetting struct {
	key  string
	look func(d *doctor, value int64) (found, wanted string, severity Severity, why string)
}

// brokerSettings returns them all.
func brokerSettings() []brokerSetting {
	return []brokerSetting{
		{"transaction.max.timeout.ms", (*doctor).maxTimeout},
		{"transactional.id.expiration.ms", func(_ *doctor, v int64) (string, string, Severity, string) {
			kept := time.Duration(v) * time.Millisecond
			return lasting(kept), "1h or longer", worse(kept >= time.Hour, Warning), "the brokers forget how a transaction ended after that time, and its end is then proven by other means or not at all"
		}},
		{"producer.id.expiration.ms", func(_ *doctor, v int64) (string, string, Severity, string) {
			kept := time.Duration(v) * time.Millisecond
			return lasting(kept), "10m or longer", worse(kept >= 10*time.Minute, Warning), "a sink that is quiet for longer must begin anew"
		}},
		{"offsets.retention.minutes", func(_ *doctor, v int64) (string, string, Severity, string) {
			kept := time.Duration(v) * time.Minute
			severity := worse(kept >= 24*time.Hour, Warning)
			if kept < leastTimeout {
				severity = Wrong
			}
			return lasting(kept), "24h or longer", severity, "the witness of a commit is an offset, and goes after that time"
		}},
	}
}

func worse(ok bool, bad Severity) Severity {
	if ok {
		return Fine
	}
	return bad
}

// maxTimeout judges how long a transaction may stay open, and keeps how long ours will.
func (d *doctor) maxTimeout(v int64) (found, wanted string, severity Severity, why string) {
	most := time.Duration(v) * time.Millisecond
	ours := d.cfg.Sink.TransactionTimeout
	if ours == 0 || d.timeout > 0 && most < d.timeout {
		ours = most
	}
	d.timeout = ours
	d.unbounded = d.unbounded && ours == Unbounded
	found, wanted = strconv.FormatInt(v, 10), strconv.FormatInt(Unbounded.Milliseconds(), 10)
	switch {
	case d.cfg.Sink.TransactionTimeout > most:
		return found, strconv.FormatInt(d.cfg.Sink.TransactionTimeout.Milliseconds(), 10) + " or more", Wrong, "the sink's transaction timeout is longer than the brokers allow, and they refuse it"
	case ours < leastTimeout:
		return found, strconv.FormatInt(leastTimeout.Milliseconds(), 10) + " or more", Wrong, "the brokers would drop a transaction before its commit can be decided and carried out"
	case ours != Unbounded:
		return found, wanted, Note, fmt.Sprintf("a prepared transaction is dropped by the brokers %s after its first record, so the coordinator has to work with deadlines", lasting(ours))
	}
	return found, wanted, Fine, ""
}

// brokers looks at the settings of each broker.
func (d *doctor) brokers(ctx context.Context, ids []int32) []Finding {
	var out []Finding
	for _, n := range ids {
		subject := fmt.Sprintf("broker %d", n)
		configs, err := kadm.NewClient(d.cl).DescribeBrokerConfigs(ctx, n)
		if err == nil && len(configs) == 1 {
			err = configs[0].Err
		}
		for _, c := range configs {
			d.embedded = d.embedded || text(c, embeddedSetting) == "true"
		}
		for _, s := range brokerSettings() {
			if err != nil {
				out = append(out, finding.Unknown(subject, s.key, "a good value", err))
				continue
			}
			for _, c := range configs {
				v, ok := number(c, s.key)
				if !ok {
					continue // a broker that has no such setting
				}
				f := Finding{Subject: subject, Setting: s.key}
				f.Found, f.Wanted, f.Severity, f.Why = s.look(d, v)
				if f.Severity == Fine {
					f.Why = ""
				}
				out = append(out, f)
			}
		}
	}
	if d.timeout == 0 {
		d.timeout, d.unbounded = defaultMaxTimeout, false
	}
	return out
}

// clock compares ours with that of the controller, the only one that can be asked without writing.
func (d *doctor) clock(ctx context.Context) []Finding {
	const wanted = "within 1s"
	subject, setting := "the controller's clock", "difference to ours"
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	asked := time.Now()
	resp, err := req.RequestWith(ctx, d.cl)
	took := time.Since(asked)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return []Finding{finding.Unknown(subject, setting, wanted, err)}
	}
	theirs := int64(-1)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			for _, v := range p.CurrentVoters {
				if v.ReplicaID == p.LeaderID {
					theirs = v.LastCaughtUpTimestamp // of the leader itself: now
				}
			}
		}
	}
	if theirs < 0 {
		return []Finding{finding.Unknown(subject, setting, wanted, errors.New("the controller does not tell its time"))}
	}
	diff := time.UnixMilli(theirs).Sub(asked.Add(took / 2)).Round(time.Millisecond)
	f := Finding{Subject: subject, Setting: setting, Found: diff.String(), Wanted: wanted}
	switch off := diff.Abs(); {
	case off > time.Hour:
		f.Severity, f.Why = Wrong, "brokers refuse records whose timestamps are an hour ahead, and delete by them"
	case off > time.Second+took:
		f.Severity, f.Why = Warning, "deadlines are counted from our timestamps, and brokers delete records by theirs"
	default:
		f.Severity = Fine
	}
	return []Finding{f}
}
