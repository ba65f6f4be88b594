package server

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func TestReportsOfManyResolversAreBoundedAndMakeRoomWithTime(t *testing.T) {
	r := &resolution{reports: &reports{}}
	report := func(n int) error {
		_, err := r.Report(t.Context(), &unisinkv1.ReportRequest{Resolver: fmt.Sprint("r", n), IntervalMs: 1000})
		return err
	}
	for n := range mostResolvers {
		if err := report(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := report(mostResolvers); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("one more than there is room for: %v", err)
	}
	if err := report(0); err != nil {
		t.Errorf("one that is known: %v", err)
	}
	late := &unisinkv1.ReportRequest{Resolver: "late", IntervalMs: 1 << 62}
	if now := time.Now(); !r.reports.add(late, now.Add(time.Minute)) || len(r.reports.list(now.Add(2*mostReport))) != 1 || len(r.reports.list(now.Add(4*mostReport))) != 0 {
		t.Error("those that fell silent took up the room, or an interval without end was taken")
	}
}
