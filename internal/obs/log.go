package obs

import (
	"log/slog"
	"strconv"
	"time"
)

// What a log line is about.

// Namespace is the name of the coordinator group in the resources it shares.
func Namespace(name string) slog.Attr { return slog.String("namespace", name) }

// Pipeline is a pipeline's name.
func Pipeline(name string) slog.Attr { return slog.String("pipeline", name) }

// Scope is a scope as "pipeline/shard".
func Scope(scope string) slog.Attr { return slog.String("scope", scope) }

// Gen is a generation's number.
func Gen(g uint64) slog.Attr { return slog.Uint64("generation", g) }

// Epoch is an epoch by its pair, shown as "7.12".
func Epoch(gen, n uint64) slog.Attr {
	b := strconv.AppendUint(make([]byte, 0, 24), gen, 10)
	b = append(b, '.')
	return slog.String("epoch", string(strconv.AppendUint(b, n, 10)))
}

// Txn is a transaction's id.
func Txn(id string) slog.Attr { return slog.String("txn", id) }

// Branch is a branch's full name.
func Branch(name string) slog.Attr { return slog.String("branch", name) }

// Resource is a resource's name within its participant, or its identity.
func Resource(name string) slog.Attr { return slog.String("resource", name) }

// Adapter is the kind of a resource: "kafka", "file", "postgres".
func Adapter(kind string) slog.Attr { return slog.String("adapter", kind) }

// Identity is what a resource is, independent of its address, as handles carry it.
func Identity(id string) slog.Attr { return slog.String("identity", id) }

// Who.

// Member is a member's name within its scope.
func Member(name string) slog.Attr { return slog.String("member", name) }

// Instance is the id of one run of a member's process.
func Instance(id string) slog.Attr { return slog.String("instance", id) }

// Node is a coordinator node's id.
func Node(id string) slog.Attr { return slog.String("node", id) }

// Leader is the id of the coordinator node that leads, or "" when none is known.
func Leader(id string) slog.Attr { return slog.String("leader", id) }

// Addr is a network address.
func Addr(addr string) slog.Attr { return slog.String("addr", addr) }

// Actor is who asked for a change.
func Actor(who string) slog.Attr { return slog.String("actor", who) }

// Request is the id of a mutating request.
func Request(id string) slog.Attr { return slog.String("request", id) }

// Where in the log.

// Term is a Raft term.
func Term(t uint64) slog.Attr { return slog.Uint64("term", t) }

// Index is an index of the replicated log.
func Index(i uint64) slog.Attr { return slog.Uint64("index", i) }

// Command is the kind of a ledger command.
func Command(kind string) slog.Attr { return slog.String("command", kind) }

// What happened.

// Cause is why something was done, in the words of whoever asked for it.
func Cause(why string) slog.Attr { return slog.String("cause", why) }

// Outcome is a verdict: "committed", "aborted" or "pending".
func Outcome(verdict string) slog.Attr { return slog.String("outcome", verdict) }

// Proof says what showed that a branch is resolved.
func Proof(what string) slog.Attr { return slog.String("proof", what) }

// Err is what went wrong. A nil error gives an empty attribute, which handlers leave out.
func Err(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.String("err", err.Error())
}

// Attempt counts tries, from 1.
func Attempt(n int) slog.Attr { return slog.Int("attempt", n) }

// Waited is how long something has taken so far.
func Waited(d time.Duration) slog.Attr { return slog.Duration("waited", d) }

// Next is how long until the next try.
func Next(d time.Duration) slog.Attr { return slog.Duration("next", d) }

// Count is how many.
func Count(n int) slog.Attr { return slog.Int("count", n) }

// Bytes is a size.
func Bytes(n int64) slog.Attr { return slog.Int64("bytes", n) }

// In a resource.

// Topic is a Kafka topic's name.
func Topic(name string) slog.Attr { return slog.String("topic", name) }

// Partition is a partition's number within its topic.
func Partition(n int32) slog.Attr { return slog.Int64("partition", int64(n)) }

// Offset is a record's offset within its partition.
func Offset(n int64) slog.Attr { return slog.Int64("offset", n) }

// Path is a file or directory.
func Path(path string) slog.Attr { return slog.String("path", path) }
