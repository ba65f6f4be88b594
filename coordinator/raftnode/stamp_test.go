package raftnode

import (
	"testing"
	"time"
)

// P24's back-off, deadlines and ages are told by the stamps of entries. A clock that was ahead and is set right must
// neither take them back nor make them stand.
func TestStampsNeitherGoBackNorStandWhenTheClockIsSetBack(t *testing.T) {
	now, skew := time.UnixMilli(1_000_000), time.Duration(0)
	s := &stamps{skew: func() time.Duration { return skew }}
	expect := func(when string, want int64) {
		t.Helper()
		if got := s.next(now); got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	expect("at first", 1_000_000)
	skew = 100 * time.Second
	expect("ahead", 1_100_000)
	skew = 0
	expect("set right", 1_100_000)
	for range 4000 { // stamps that follow each other closely do not lose the halves
		now = now.Add(time.Millisecond)
		s.next(now)
	}
	expect("4 s later, by many stamps", 1_102_000)
	now = now.Add(6 * time.Second)
	expect("10 s later", 1_105_000)
	now = now.Add(190 * time.Second)
	expect("when the clock has come up", 1_200_000)
	now = now.Add(time.Second)
	expect("after that", 1_201_000)
}

// Whatever the time between two entries, nothing of it is lost: half the pace is half the pace.
func TestStampsGoAtHalfThePaceHoweverFarApartEntriesAre(t *testing.T) {
	for _, apart := range []time.Duration{900 * time.Microsecond, 1900 * time.Microsecond, 2900 * time.Microsecond, 3900 * time.Microsecond, 7 * time.Millisecond} {
		now, skew := time.UnixMilli(1_000_000), 100*time.Second
		s := &stamps{skew: func() time.Duration { return skew }}
		begun := s.next(now)
		skew = 0
		for range 1000 {
			now = now.Add(apart)
			s.next(now)
		}
		if got, want := s.next(now)-begun, (500 * apart).Milliseconds(); got != want {
			t.Errorf("entries %s apart: stamps went on by %d ms in %s, want %d", apart, got, 1000*apart, want)
		}
	}
}
