package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/unisink/unisink/participant"
)

// setup reports whether an answer will be the same until a person changes a setting or a right.
func setup(err error) bool {
	for _, e := range []error{
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.UnsupportedVersion, kerr.InvalidTransactionTimeout, kerr.InvalidTopicException,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// fencing reports whether an answer says that the producer's epoch is no longer the newest. A
// newer generation is one cause; the broker's time-out and an operator are others.
func fencing(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) ||
		errors.Is(err, kerr.InvalidProducerIDMapping) || errors.Is(err, kerr.FencedInstanceID)
}

// classed puts an error into its class: misconfigured where only a person can help, else none.
func classed(err error) error {
	if err != nil && setup(err) && !errors.Is(err, participant.ErrMisconfigured) {
		return fmt.Errorf("%w: %w", participant.ErrMisconfigured, err)
	}
	return err
}

// pause is a growing wait between tries.
type pause struct {
	next, most time.Duration
	gently     bool // it grows by half, else it doubles
}

// short is for what is over in milliseconds and waited for by readers, slow for what waits for a
// broker to move.
func short() pause {
	return pause{next: 500 * time.Microsecond, most: 20 * time.Millisecond, gently: true}
}
func slow() pause { return pause{next: 20 * time.Millisecond, most: time.Second} }

// wait sleeps, longer each time, or returns the context's error.
func (p *pause) wait(ctx context.Context) error {
	t := time.NewTimer(p.next)
	defer t.Stop()
	grown := p.next * 2
	if p.gently {
		grown = p.next * 3 / 2
	}
	p.next = min(grown, p.most)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isAny reports whether err is one of them.
func isAny(err error, these ...error) bool {
	return slices.ContainsFunc(these, func(e error) bool { return errors.Is(err, e) })
}
