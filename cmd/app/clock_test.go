package app

import (
	"testing"
	"time"
)

// What has been in doubt since the day before yesterday must not look as if it were of this morning.
func TestATimeOfAnotherDayIsShownWithItsDay(t *testing.T) {
	now := time.Now()
	for shift, layout := range map[time.Duration]string{
		0: "15:04:05.000", -time.Hour: "15:04:05.000", time.Hour: "15:04:05.000", -48 * time.Hour: time.DateTime, 72 * time.Hour: time.DateTime,
	} {
		at := now.Add(shift)
		if got, want := clock(at.UnixMilli()), time.UnixMilli(at.UnixMilli()).Format(layout); got != want {
			t.Errorf("%s from now is %q, want %q", shift, got, want)
		}
	}
	if got := clock(0); got != "-" {
		t.Errorf("no time is %q", got)
	}
}
