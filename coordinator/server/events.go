package server

import (
	"github.com/unisink/unisink/coordinator/eventlog"
	"github.com/unisink/unisink/coordinator/wire"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

type events struct {
	unisinkv1.UnimplementedEventsServer
	s        *Server
	watchers watchers
}

var eventKinds = map[eventlog.Kind]unisinkv1.EventKind{
	eventlog.Leader:            unisinkv1.EventKind_EVENT_KIND_LEADER,
	eventlog.MemberAttached:    unisinkv1.EventKind_EVENT_KIND_MEMBER_ATTACHED,
	eventlog.MemberLost:        unisinkv1.EventKind_EVENT_KIND_MEMBER_LOST,
	eventlog.GenerationOpened:  unisinkv1.EventKind_EVENT_KIND_GENERATION_OPENED,
	eventlog.GenerationStarted: unisinkv1.EventKind_EVENT_KIND_GENERATION_STARTED,
	eventlog.GenerationClosed:  unisinkv1.EventKind_EVENT_KIND_GENERATION_CLOSED,
	eventlog.Barrier:           unisinkv1.EventKind_EVENT_KIND_BARRIER,
	eventlog.Vote:              unisinkv1.EventKind_EVENT_KIND_VOTE,
	eventlog.Decided:           unisinkv1.EventKind_EVENT_KIND_DECIDED,
	eventlog.Proven:            unisinkv1.EventKind_EVENT_KIND_PROVEN,
	eventlog.Halted:            unisinkv1.EventKind_EVENT_KIND_HALTED,
	eventlog.Heuristic:         unisinkv1.EventKind_EVENT_KIND_HEURISTIC,
	eventlog.Transaction:       unisinkv1.EventKind_EVENT_KIND_TRANSACTION,
	eventlog.Swept:             unisinkv1.EventKind_EVENT_KIND_SWEPT,
}

// Watch begins with what the node remembers behind "after" and goes on until the caller ends it.
func (e *events) Watch(req *unisinkv1.WatchRequest, stream unisinkv1.Events_WatchServer) error {
	leave, err := e.watchers.enter(e.s.guard.Caller(stream.Context()))
	if err != nil {
		return err
	}
	defer leave()
	node := e.s.c.Node.NodeStatus().ID
	after := req.GetAfter()
	for {
		batch, changed := e.s.c.Events.After(after)
		for _, ev := range batch {
			after = ev.Seq
			if p := req.GetPipeline(); p != "" && ev.Scope.Pipeline != p {
				continue
			}
			out := &unisinkv1.Event{
				Seq: ev.Seq, Node: node, AtUs: ev.At.UnixMicro(), Kind: eventKinds[ev.Kind],
				Member: ev.Member, Text: ev.Text, Term: ev.Term, Index: ev.Index,
			}
			if ev.Scope.Pipeline != "" {
				out.Scope = wire.FromScope(ev.Scope)
			}
			if !ev.Epoch.IsZero() {
				out.Epoch = wire.FromEpoch(ev.Epoch)
			}
			if err := stream.Send(out); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
