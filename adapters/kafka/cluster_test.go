package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/unisink/unisink/participant"
)

func TestRetryWaitGrowsToHalfASecond(t *testing.T) {
	for fails, most := range map[int]time.Duration{
		-1: 50 * time.Millisecond, 0: 50 * time.Millisecond, 1: 50 * time.Millisecond, 2: 100 * time.Millisecond,
		4: 400 * time.Millisecond, 5: retryMost, 6: retryMost, 1 << 40: retryMost,
	} {
		low, high := most, time.Duration(0)
		for range 1000 {
			w := retryWait(fails)
			low, high = min(low, w), max(high, w)
		}
		if low < most/2 || high >= most || high-low < most/4 {
			t.Errorf("after %d failures the waits are from %s to %s, want them spread over the upper half of %s", fails, low, high, most)
		}
	}
}

// A coordinator that has just been started answers "loading" for a while. The library's own waits
// would make 24 s of what is asked for ten times here.
func TestCommitIsSentSoonAfterACoordinatorIsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.opened(1)
	h := r.prepared(s, branchName(1, 1), 1)
	const times = 9
	r.b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.CoordinatorLoadInProgress, Count: times})
	began := time.Now()
	r.commit(s, h, participant.Committed)
	took := time.Since(began)
	if most := 2 * times * retryMost; took > most {
		t.Errorf("the commit took %s, want at most %s", took, most)
	}
	if took < time.Second {
		t.Errorf("the commit took %s: the coordinator was not loading at all", took)
	}
}
