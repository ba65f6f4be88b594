package worker

import (
	"context"

	"github.com/unisink/unisink/participant"
)

// Member is the member that the pipeline is; its barriers are traced, since a member that is alone in its scope orders
// them itself and tells nobody.
func (h *Held) Member(ctx context.Context, c participant.MemberConfig) (*participant.Member, error) {
	input, err := h.source.Describe(ctx)
	if err != nil {
		return nil, err
	}
	c.Pipeline, c.Member, c.Fingerprint = h.Pipeline.Name(), h.Pipeline.Member(), h.Pipeline.Fingerprint()
	c.Resources = map[string]participant.Resource{sinkName: h.sink}
	c.Inputs = map[string]participant.Description{sourceName: input}
	return participant.NewMember(c, &tracedTask{h.Pipeline.Task(0, c.Logger), h.trace})
}

type tracedTask struct {
	participant.Task
	trace *trace
}

// Barrier tells when it is ordered.
func (t *tracedTask) Barrier(ctx context.Context, b participant.Barrier) error {
	if err := t.trace.tell(Event{What: Ordered, Generation: b.Generation, N: b.N}); err != nil {
		return err
	}
	return t.Task.Barrier(ctx, b)
}
