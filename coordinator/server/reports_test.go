package server

import (
	"fmt"
	"strings"
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

// What lists resources would show it, to everybody, and each of many may be of megabytes.
func TestTheNamesInAReportAreBounded(t *testing.T) {
	r := &resolution{reports: &reports{}}
	for size, taken := range map[int]bool{1: true, 128: true, 129: false, 1 << 20: false} {
		name := strings.Repeat("n", size)
		for what, q := range map[string]*unisinkv1.ReportRequest{"resolver": {Resolver: name}, "version": {Resolver: "r", Version: name}} {
			if _, err := r.Report(t.Context(), q); (err == nil) != taken {
				t.Errorf("a %s of %d bytes: %.80v", what, size, err)
			}
		}
	}
}
