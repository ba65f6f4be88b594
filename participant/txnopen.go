package participant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unisink/unisink/internal/branchname"
)

// handPending is how many branches of transactions run by hand may be open or prepared at once in
// a resource that has to count them (Kafka's slots).
const handPending = 16

// HandOpening is what a resource is opened for by a process that runs transactions by hand. process
// names the process and stays the same over its restarts: opening again fences whoever was opened
// under that name before, so two that live at once have two names. The fence is the time of the
// opening by this machine's clock, in milliseconds.
func HandOpening(ns Namespace, process, resource string) Opening {
	return Opening{
		Namespace: ns, Scope: branchname.HandPipeline + "/0", Member: process, Resource: resource,
		Generation: uint64(time.Now().UnixMilli()), MaxPending: handPending, EpochInterval: time.Second,
	}
}

// Open makes resources, by the names that transactions call them, ready for branches run by hand:
// each is described, which reports one that can't be reached or is set up wrongly, and opened as
// HandOpening says. A resource that is opened by a Member is not opened here as well: use two objects. A
// repeat opens again, which drops what was being written. Errors name the resource.
func (c *Client) Open(ctx context.Context, process string, resources map[string]Resource) error {
	if err := checkName("process", process); err != nil {
		return fmt.Errorf("%w: %w", ErrMisconfigured, err)
	}
	ns, err := c.Namespace(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if err := checkName("resource", name); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrMisconfigured, err))
			continue
		}
		if err := openByHand(ctx, ns, process, name, resources[name]); err != nil {
			errs = append(errs, fmt.Errorf("open %s for transactions by hand: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func openByHand(ctx context.Context, ns Namespace, process, name string, r Resource) error {
	if r == nil {
		return fmt.Errorf("%w: the resource is nil", ErrMisconfigured)
	}
	if _, err := r.Describe(ctx); err != nil {
		return err
	}
	return r.Open(ctx, HandOpening(ns, process, name))
}
