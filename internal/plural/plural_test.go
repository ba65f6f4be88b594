package plural

import "testing"

func TestOneIsNoPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 files", 1: "1 file", 2: "2 files", -3: "-3 files"} {
		if got := Of(n, "file"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for thing, want := range map[string]string{"branch": "2 branches", "process": "2 processes", "epoch": "2 epochs"} {
		if got := Of(2, thing); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := Of(^uint64(0), "file"); got != "18446744073709551615 files" {
		t.Errorf("%q", got)
	}
}
