package raftnode

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// foundingEntries is where a group's founding ends: before its ledger.Init, and so before anything
// is answered to anybody, every voter holds a committed log up to this index. Whoever asks for votes
// with a shorter log either belongs to a group that has answered nobody, or has lost its disk.
const foundingEntries = 32

// errProbation is what a node in probation says instead of calling for votes.
var errProbation = errors.New("this node began with an empty disk and does not vote before it has caught up with the leader")

// probationKey is set in the stable store while a node is in probation.
var probationKey = []byte("UnisinkProbation")

// probation keeps a node that began without a log from deciding an election by a memory that it may
// have lost. Until a leader has given it everything that is committed, it votes, and calls for votes,
// only where the candidate's log ends within the founding. Without it:
//
//	n0 and n2 decide epochs while n1 is down
//	n0 and n2 die, n2's disk is emptied
//	n1 and n2 start: n2 knows nothing, votes for n1, and what was decided is gone
//
// The proof that nothing is lost, and that a founding cannot get stuck, stands in DESIGN.md.
type probation struct {
	store *store
	log   *slog.Logger
	on    atomic.Bool
}

// begin reads whether the node is in probation; a node without log and snapshot comes into it,
// on disk before it hears anybody.
func begin(s *store, snapshots raft.SnapshotStore, log *slog.Logger) (*probation, error) {
	p := &probation{store: s, log: log}
	mark, err := s.GetUint64(probationKey)
	if err != nil && err.Error() != raftboltdb.ErrKeyNotFound.Error() {
		return nil, err
	}
	if mark == 0 {
		last, err := s.LastIndex()
		if err != nil {
			return nil, err
		}
		kept, err := snapshots.List()
		if err != nil {
			return nil, fmt.Errorf("%w: list snapshots: %w", ErrDataDirUnusable, err)
		}
		if last > 0 || len(kept) > 0 {
			return p, nil
		}
		if err := s.SetUint64(probationKey, 1); err != nil {
			return nil, err
		}
	}
	p.on.Store(true)
	return p, nil
}

// allows reports whether this node may take part in the election of a log that ends at index.
func (p *probation) allows(index uint64) bool {
	return p == nil || !p.on.Load() || index < foundingEntries
}

// end ends the probation; on return that is on disk.
func (p *probation) end() error {
	if p == nil || !p.on.Load() {
		return nil
	}
	if err := p.store.SetUint64(probationKey, 0); err != nil {
		return err
	}
	p.on.Store(false)
	p.log.Info("this node has caught up and votes from now on")
	return nil
}

// heard ends the probation if what raft has just stored for its leader reaches to the leader's
// commit index, and the leader committed there in its own term: then this node holds all that was
// committed before the term, and all that was committed in it so far.
func (p *probation) heard(req *raft.AppendEntriesRequest) error {
	if !upToDate(req) {
		return nil
	}
	term, err := p.termAt(req, req.LeaderCommitIndex)
	if err != nil || term != req.Term {
		return err
	}
	return p.end()
}

// upToDate reports whether a follower that took req holds what its leader knew to be committed.
func upToDate(req *raft.AppendEntriesRequest) bool {
	return req.LeaderCommitIndex > 0 && reaches(req) >= req.LeaderCommitIndex
}

// reaches is where the log of a follower that took req equals the leader's.
func reaches(req *raft.AppendEntriesRequest) uint64 {
	return req.PrevLogEntry + uint64(len(req.Entries))
}

// termAt is the term of the entry at index; 0 if it is not in the log any more.
func (p *probation) termAt(req *raft.AppendEntriesRequest, index uint64) (uint64, error) {
	if index == req.PrevLogEntry {
		return req.PrevLogTerm, nil
	}
	for _, e := range req.Entries {
		if e.Index == index {
			return e.Term, nil
		}
	}
	var e raft.Log
	err := p.store.GetLog(index, &e)
	if errors.Is(err, raft.ErrLogNotFound) {
		return 0, nil
	}
	return e.Term, err
}

// relay passes raft what arrives, until done is closed. It answers itself where this node must not
// vote, and ends the probation before the leader hears of what ended it.
func (p *probation) relay(in <-chan raft.RPC, out chan<- raft.RPC, done <-chan struct{}, term func() uint64) {
	for {
		var rpc raft.RPC
		select {
		case rpc = <-in:
		case <-done:
			return
		}
		answer := rpc.RespChan
		heard := make(chan raft.RPCResponse, 1)
		req, appends := rpc.Command.(*raft.AppendEntriesRequest)
		switch {
		case p.refuses(&rpc, term):
			continue
		case appends && p.on.Load():
			rpc.RespChan = heard
		}
		select {
		case out <- rpc:
		case <-done:
			return
		}
		if rpc.RespChan == answer {
			continue
		}
		select {
		case said := <-heard:
			if resp, ok := said.Response.(*raft.AppendEntriesResponse); ok && said.Error == nil && resp.Success {
				said.Error = p.heard(req)
			}
			answer <- said // has room for one answer
		case <-done:
			return
		}
	}
}

// refuses answers a call for votes that this node must not grant.
func (p *probation) refuses(rpc *raft.RPC, term func() uint64) bool {
	switch req := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		if p.allows(req.LastLogIndex) {
			return false
		}
		rpc.Respond(&raft.RequestVoteResponse{RPCHeader: versionOnly, Term: term()}, nil)
	case *raft.RequestPreVoteRequest:
		if p.allows(req.LastLogIndex) {
			return false
		}
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: versionOnly, Term: term()}, nil)
	default:
		return false
	}
	return true
}

// versionOnly is the head of an answer; raft reads the version alone.
var versionOnly = raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}
