package main

import (
	"bytes"
	"testing"
)

func TestAmountsAreCentsOrRefused(t *testing.T) {
	for text, want := range map[string]int64{
		"12.50": 1250, "1": 100, "0.01": 1, "999999999999.99": 99999999999999,
		"": 0, "0": 0, "0.00": 0, "1.5": 0, "1.505": 0, "-1": 0, "+1": 0, "1e3": 0, "1,50": 0, " 1": 0, "9999999999999": 0,
	} {
		got, err := parse(text)
		if got != want && err == nil || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for cents, want := range map[int64]string{0: "0.00", 5: "0.05", 1250: "12.50", -5: "-0.05", -1250: "-12.50"} {
		if got := money(cents); got != want {
			t.Errorf("%d: %s, want %s", cents, got, want)
		}
	}
}

// Nothing is asked of a coordinator for what can't be.
func TestACommandLineThatIsWrongIsRefusedAtOnce(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"move"},
		{"move", "1", "a"},
		{"steal", "1", "a", "b"},
		{"--nosuch"},
		{"move", "x", "a", "b"},
		{"move", "1", "a", "a"},
		{"--dir", t.TempDir(), "move", "1", "a", "b"},
		{"--coordinators", "nowhere", "balance"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out); err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, out.String())
		}
	}
}
