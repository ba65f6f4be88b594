package server

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/internal/grpcerr"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Two thousand watchers of one viewer held up every decision by seconds.
func TestOneCallerHasFewWatchers(t *testing.T) {
	conn := edge(t, nil, nil)
	watch := func() error {
		w, err := unisinkv1.NewEventsClient(conn).Watch(t.Context(), &unisinkv1.WatchRequest{})
		if err == nil {
			_, err = w.Header()
		}
		if err == nil {
			_, err = w.Recv()
		}
		return err
	}
	for i := range watchersOfOne {
		if err := watch(); err != nil {
			t.Fatalf("watcher %d of %d that are allowed: %v", i+1, watchersOfOne, err)
		}
	}
	err := watch()
	if reason, _ := grpcerr.Reason(err); reason != grpcerr.Busy || status.Code(err) == codes.OK || !strings.Contains(err.Error(), "end one of them") {
		t.Errorf("one more: %v", err)
	}
}

func TestAllCallersTogetherHaveABoundedNumberOfWatchers(t *testing.T) {
	var w watchers
	var last func()
	for i := range watchersOfAll {
		leave, err := w.enter(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		last = leave
	}
	if _, err := w.enter("late"); err == nil {
		t.Error("one more was let in")
	}
	last()
	leave, err := w.enter("late")
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if len(w.of) != watchersOfAll-1 {
		t.Errorf("%d callers are remembered, of %d", len(w.of), watchersOfAll-1)
	}
}
