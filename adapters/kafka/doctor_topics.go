package kafka

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/internal/finding"
)

const txnTopic = "__transaction_state"

// topicUse is what a topic is for, which decides what is wanted of it.
type topicUse struct {
	name          string
	read, written bool
	internal      bool
}

// uses lists the topics with what they are for, each once.
func (d *doctor) uses() []topicUse {
	var out []topicUse
	at := func(name string) *topicUse {
		i := slices.IndexFunc(out, func(u topicUse) bool { return u.name == name })
		if i < 0 {
			out = append(out, topicUse{name: name})
			i = len(out) - 1
		}
		return &out[i]
	}
	for _, name := range d.cfg.From {
		at(name).read = true
	}
	for _, name := range d.cfg.To {
		at(name).written = true
	}
	for _, name := range []string{txnTopic, offsetsTopic} {
		at(name).internal = true
	}
	return out
}

// topics looks at every topic: that it is there, its replicas, its settings and our rights.
func (d *doctor) topics(ctx context.Context) []Finding {
	uses := d.uses()
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, u := range uses {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(u.name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, d.cl)
	if err != nil {
		return []Finding{finding.Unknown(theCluster, "topics", "an answer", err)}
	}
	var out []Finding
	for _, u := range uses {
		for _, t := range resp.Topics {
			if t.Topic != nil && *t.Topic == u.name {
				out = append(out, d.topic(ctx, u, t)...)
			}
		}
	}
	return out
}

// settings asks for those of one topic: asked for together, one that is denied hides the others.
func (d *doctor) settings(ctx context.Context, topic string) (kadm.ResourceConfig, error) {
	configs, err := kadm.NewClient(d.cl).DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return kadm.ResourceConfig{}, err
	}
	if len(configs) != 1 {
		return kadm.ResourceConfig{}, fmt.Errorf("%d answers came", len(configs))
	}
	return configs[0], configs[0].Err
}

// topic judges one of them.
func (d *doctor) topic(ctx context.Context, u topicUse, t kmsg.MetadataResponseTopic) []Finding {
	subject := "topic " + u.name
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		f := Finding{Severity: Wrong, Subject: subject, Setting: "existence", Found: "not seen", Wanted: "seen"}
		f.Why = "create it, correct the name, or grant the right DESCRIBE: " + err.Error()
		if u.internal {
			f.Severity, f.Why = Note, "brokers make it on first use, or our client may not see it: "+err.Error()
		}
		return []Finding{f}
	}
	out := []Finding{leaderless(subject, t)}
	if u.written || u.internal {
		out = append(out, d.replication(subject, t))
		config, err := d.settings(ctx, u.name)
		if err != nil {
			out = append(out, finding.Unknown(subject, "settings", "such that nothing is lost while it is in doubt", err))
		} else {
			out = append(out, inSync(subject, t, config)...)
		}
		if err == nil && u.written {
			out = append(out, d.retention(subject, config)...)
		}
	}
	return append(out, topicRights(subject, u, t.AuthorizedOperations)...)
}

// leaderless judges whether every partition can be reached.
func leaderless(subject string, t kmsg.MetadataResponseTopic) Finding {
	without := 0
	for _, p := range t.Partitions {
		if p.Leader < 0 {
			without++
		}
	}
	return finding.Judged(without == 0, Wrong, Finding{
		Subject: subject, Setting: "partitions without a leader", Found: strconv.Itoa(without), Wanted: "0", Passes: true,
		Why: "they can be neither read nor written, and a commit that meets one can be torn",
	})
}

// replicas is the least number that a partition has.
func replicas(t kmsg.MetadataResponseTopic) int {
	least := math.MaxInt
	for _, p := range t.Partitions {
		least = min(least, len(p.Replicas))
	}
	return least
}

func (d *doctor) replication(subject string, t kmsg.MetadataResponseTopic) Finding {
	n := replicas(t)
	if d.embedded {
		return Finding{
			Severity: Note, Subject: subject, Setting: "replication factor", Found: strconv.Itoa(n), Wanted: "3",
			Why: "the broker is embedded, for trying things out: it replicates nothing",
		}
	}
	return finding.Judged(n >= 3, worseReplication(n), Finding{
		Subject: subject, Setting: "replication factor", Found: strconv.Itoa(n), Wanted: "3",
		Why: "while a broker is away a partition has no leader, and a commit that meets it is torn: readers stay blocked until it is mended",
	})
}

func worseReplication(n int) Severity {
	if n == 2 {
		return Note
	}
	return Warning
}

// inSync judges what an acknowledgement is worth.
func inSync(subject string, t kmsg.MetadataResponseTopic, config kadm.ResourceConfig) []Finding {
	var out []Finding
	if least, ok := number(config, "min.insync.replicas"); ok {
		n := replicas(t)
		f := Finding{Subject: subject, Setting: "min.insync.replicas", Found: strconv.FormatInt(least, 10), Wanted: "2"}
		short := 0
		for _, p := range t.Partitions {
			if int64(len(p.ISR)) < least {
				short++
			}
		}
		switch {
		case least > int64(n):
			f.Severity, f.Wanted, f.Why = Wrong, fmt.Sprintf("%d or less", n), "it asks for more replicas than there are, so every write is refused"
		case short > 0:
			f.Severity, f.Passes, f.Why = Wrong, true, fmt.Sprintf("%d partitions have fewer replicas in sync now, and refuse writes until they are back", short)
		case least < 2 && n > 1:
			f.Severity, f.Why = Warning, "what was acknowledged may be on one disk only, and be lost with it"
		case least < 2:
			f.Severity, f.Why = Note, "there is one replica; see its replication factor"
		default:
			f.Severity = Fine
		}
		out = append(out, f)
	}
	if v := text(config, "unclean.leader.election.enable"); v != "" {
		out = append(out, finding.Judged(v != "true", Warning, Finding{
			Subject: subject, Setting: "unclean.leader.election.enable", Found: v, Wanted: "false",
			Why: "a replica that has not everything may lead, and what was committed is lost",
		}))
	}
	return out
}

// retention judges whether records outlast the time that they may be in doubt.
func (d *doctor) retention(subject string, config kadm.ResourceConfig) []Finding {
	var out []Finding
	deletes := text(config, "cleanup.policy") != "compact"
	if ms, ok := number(config, "retention.ms"); ok && deletes {
		keeps := time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		f := Finding{Subject: subject, Setting: "retention.ms", Found: strconv.FormatInt(ms, 10)}
		wanted := d.cfg.InDoubt
		if !d.unbounded {
			wanted = min(wanted, d.timeout) // the brokers end the transaction before that
		}
		f.Wanted = fmt.Sprintf("%d or more, or -1", wanted.Milliseconds())
		f.Why = "records are deleted while they are in doubt, and their commit is answered well all the same"
		switch {
		case ms < 0 || keeps >= wanted:
			f.Severity, f.Why = Fine, ""
		case keeps < leastTimeout:
			f.Severity = Wrong
		default:
			f.Severity = Warning
		}
		out = append(out, f)
	}
	if bytes, ok := number(config, "retention.bytes"); ok && deletes {
		out = append(out, finding.Judged(bytes < 0, Warning, Finding{
			Subject: subject, Setting: "retention.bytes", Found: strconv.FormatInt(bytes, 10), Wanted: "-1",
			Why: "records are deleted by size, also while they are in doubt, and no deadline can be counted for that",
		}))
	}
	return out
}
