package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// slotID is the transactional id of a slot: a branch's name with the slot in the place of the
// epoch, so ids grow with restarts and never with epochs.
func slotID(o participant.Opening, pipeline string, shard uint32, slot int) string {
	if mutant.On("kafka/ids-carry-generation") {
		o.Generation = 1
	}
	return participant.BranchName{
		Namespace: o.Namespace, Pipeline: pipeline, Shard: shard, Member: o.Member,
		Resource: o.Resource, Generation: o.Generation, N: uint64(slot),
	}.String()
}

// parseSlotID reads what slotID wrote; N of the result is the slot. Anything else is not ours.
func parseSlotID(id string) (participant.BranchName, bool) {
	n, err := participant.ParseBranchName(id)
	return n, err == nil && n.Txn == ""
}

// groupOf is the private consumer group that holds a resource's witnesses and its fence.
func groupOf(n participant.BranchName) string {
	return fmt.Sprintf("unisink.%s.%s.%d.%s.%s", n.Namespace, n.Pipeline, n.Shard, n.Member, n.Resource)
}

// listTransactions asks every broker for transactions, keeps those whose id is one of ours and
// that keep says yes to, and describes them. The pattern only spares the wire: brokers before 4.1
// ignore it, and what counts is the parsed name (L9).
func listTransactions(ctx context.Context, cl *kgo.Client, states []string, keep func(participant.BranchName) bool) ([]Transaction, error) {
	const anyOfOurs = `^[^.]+\.[^.]+\.[0-9]+\.[^.]+\.[^.]+\.[0-9]+\.[0-9]+$`
	req := kmsg.NewPtrListTransactionsRequest()
	req.StateFilters = states
	req.TransactionalIDPattern = kmsg.StringPtr(anyOfOurs)
	byID := make(map[string]participant.BranchName)
	var ids []string
	var failed error
	for _, shard := range cl.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.ListTransactionsResponse)
		if shard.Err != nil || !ok {
			failed = errors.Join(failed, shard.Err)
			continue
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for _, t := range resp.TransactionStates {
			if n, ours := parseSlotID(t.TransactionalID); ours && keep(n) {
				if _, twice := byID[t.TransactionalID]; !twice {
					ids = append(ids, t.TransactionalID)
				}
				byID[t.TransactionalID] = n
			}
		}
	}
	if failed != nil {
		return nil, failed // half a list would hide what a broker that did not answer holds
	}
	var out []Transaction
	described, err := describe(ctx, cl, ids...)
	if err != nil {
		return nil, err
	}
	for _, d := range described {
		if errors.Is(d.err, kerr.TransactionalIDNotFound) {
			continue // expired meanwhile
		}
		if d.err != nil {
			return nil, fmt.Errorf("describe %s: %w", d.id, d.err)
		}
		out = append(out, Transaction{ID: d.id, Name: byID[d.id], State: d.state, PID: d.pid, Epoch: d.epoch, Since: d.since, Partitions: d.partitions})
	}
	return out, nil
}

// described is one answer of DescribeTransactions.
type described struct {
	id         string
	err        error
	state      string
	pid        int64
	epoch      int16
	since      time.Time
	timeout    time.Duration // after it the broker ends the transaction, counted from since
	partitions map[string][]int32
}

// describe asks the coordinators for transactions, whatever their number.
func describe(ctx context.Context, cl *kgo.Client, ids ...string) ([]described, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	var out []described
	for _, shard := range cl.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.DescribeTransactionsResponse)
		if shard.Err != nil || !ok {
			return nil, fmt.Errorf("describe transactions: %w", shard.Err)
		}
		for _, t := range resp.TransactionStates {
			d := described{
				id: t.TransactionalID, err: kerr.ErrorForCode(t.ErrorCode), state: t.State,
				pid: t.ProducerID, epoch: t.ProducerEpoch, partitions: make(map[string][]int32, len(t.Topics)),
			}
			d.timeout = time.Duration(t.TimeoutMillis) * time.Millisecond
			if t.StartTimestamp > 0 {
				d.since = time.UnixMilli(t.StartTimestamp)
			}
			for _, topic := range t.Topics {
				d.partitions[topic.Topic] = append(d.partitions[topic.Topic], topic.Partitions...)
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// handleName is what makes a transaction unique for ever.
func handleName(id string, pid int64, epoch int16) string {
	return id + "|" + strconv.FormatInt(pid, 10) + "|" + strconv.Itoa(int(epoch))
}

// States of a transaction, as Kafka calls them.
const (
	stateOngoing       = "Ongoing"
	statePrepareCommit = "PrepareCommit"
	statePrepareAbort  = "PrepareAbort"
	stateCommitted     = "CompleteCommit"
	stateAborted       = "CompleteAbort"
	stateEmpty         = "Empty"
)

// unfinishedStates are those in which a partition may still wait for a marker.
func unfinishedStates() []string {
	return []string{stateOngoing, statePrepareCommit, statePrepareAbort}
}

// unfinished reports whether a state is one of them.
func unfinished(state string) bool {
	return state == stateOngoing || state == statePrepareCommit || state == statePrepareAbort
}
