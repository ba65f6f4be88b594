package kafka

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/services/servicestest"
	"github.com/unisink/unisink/participant"
)

// victimVariable makes this test binary a process that is to be killed: "brokers topic namespace", and
// the file of a handle if all it does is to commit that.
const victimVariable = "UNISINK_KAFKA_VICTIM"

// victim lives as a member does, and prints what a ledger would know: each vote when it is counted,
// and the names of the fault points when it comes to its end. Its exit code says how it ended.
func victim() int {
	f := strings.Fields(os.Getenv(victimVariable))
	var err error
	switch brokers := strings.Split(f[0], ","); len(f) {
	case 3:
		err = victimLife(context.Background(), brokers, f[1], f[2])
	case 4:
		err = victimCommits(context.Background(), brokers, f[3])
	default:
		err = fmt.Errorf("%s: %d fields", victimVariable, len(f))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("points " + strings.Join(fault.Names(), " "))
	return 0
}

// victimLife is a restart over what an older generation left, two epochs, and one that is discarded.
func victimLife(ctx context.Context, brokers []string, topic, ns string) (err error) {
	s, err := NewSink(SinkConfig{Brokers: brokers, Topic: topic})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := rig{ns: ns, topic: topic}
	if err := s.Open(ctx, r.opening(2)); err != nil {
		return err
	}
	listed, err := s.List(ctx, r.opening(2).Namespace)
	if err != nil {
		return err
	}
	for _, l := range listed { // nobody decided any of it
		if _, err := s.Rollback(ctx, l.Handle); err != nil {
			return err
		}
	}
	for n := uint64(1); n <= 3; n++ {
		b, err := s.Begin(ctx, r.name(2, n))
		if err != nil {
			return err
		}
		if err := b.(*Branch).Write(ctx, numbered(10)); err != nil {
			return err
		}
		if n == 3 {
			return b.Discard(ctx)
		}
		v, err := b.Prepare(ctx)
		if err != nil {
			return err
		}
		if v.Kind != participant.Yes {
			return v.Reason
		}
		line, err := json.Marshal(v.Handle)
		if err != nil {
			return err
		}
		fmt.Println("voted " + string(line)) // one write: the ledger has it, or it has not
		fault.Point("kafka/after-vote")
		if _, err := s.Commit(ctx, v.Handle); err != nil {
			return err
		}
	}
	return nil
}

// victimDir is where it was built, if it was.
var victimDir string

// victimCommits is a resolver with one handle.
func victimCommits(ctx context.Context, brokers []string, file string) (err error) {
	line, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var h participant.Handle
	if err := json.Unmarshal(line, &h); err != nil {
		return err
	}
	s, err := NewSink(SinkConfig{Brokers: brokers})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, err = s.Commit(ctx, h)
	return err
}

// killedWhileCommitting is a resolver that is killed at a point on its way to the proof of a handle.
func (r *rig) killedWhileCommitting(h participant.Handle, point string) {
	r.Helper()
	line, err := json.Marshal(h)
	if err != nil {
		r.Fatal(err)
	}
	file := filepath.Join(r.TempDir(), "handle")
	if err := os.WriteFile(file, line, 0o600); err != nil {
		r.Fatal(err)
	}
	if _, _, killed := r.runVictim(point+"=crash", file); !killed {
		r.Fatalf("the resolver came to its end without %s", point)
	}
}

// victimBinary is this package's tests with the fault points in them.
var victimBinary = sync.OnceValues(func() (string, error) {
	if fault.Enabled {
		return os.Executable()
	}
	var err error
	if victimDir, err = os.MkdirTemp("", "unisink-victim-"); err != nil {
		return "", err
	}
	binary := filepath.Join(victimDir, "victim")
	out, err := exec.Command("go", "test", "-c", "-tags", "faults", "-o", binary, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the victim: %w: %s", err, out)
	}
	return binary, nil
})

// runVictim runs one under a plan of faults, and returns the handles it voted for and the points
// that it reached, and whether it was killed.
func (r *rig) runVictim(plan string, more ...string) (voted []participant.Handle, points []string, killed bool) {
	r.Helper()
	binary, err := victimBinary()
	if err != nil {
		r.Fatal(err)
	}
	cmd := exec.CommandContext(r.Context(), binary)
	life := append([]string{strings.Join(r.addrs, ","), r.topic, r.ns}, more...)
	cmd.Env = append(os.Environ(), victimVariable+"="+strings.Join(life, " "), fault.Env+"="+plan)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	var ended *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &ended) && !ended.Exited():
		killed = true
	default:
		r.Fatalf("the victim ended by itself under %q: %v\n%s", plan, err, said.String())
	}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		switch kind {
		case "voted":
			var h participant.Handle
			if err := json.Unmarshal([]byte(rest), &h); err != nil {
				r.Fatal(err)
			}
			voted = append(voted, h)
		case "points":
			points = strings.Fields(rest)
		}
	}
	return voted, points, killed
}

// leaveWork is what the victim finds: work of an older generation that nobody decided.
func (r *rig) leaveWork() {
	r.Helper()
	s := r.opened(1)
	r.prepared(s, r.name(1, 1), 10)
	r.commit(s, r.prepared(s, r.name(1, 2), 10), participant.Committed)
}

// restored does what a member does after the kill: commit what the ledger lists, roll back the rest,
// write on. Readers then see everything that was decided, once.
func (r *rig) restored(decided []participant.Handle) {
	r.Helper()
	next := r.opened(3)
	for _, h := range decided {
		if p := r.finish(next.Commit, h); p.Verdict != participant.Committed {
			r.Errorf("commit of %s: %+v", h.Name, p)
		}
	}
	listed, err := next.List(r.Context(), r.opening(3).Namespace)
	if err != nil {
		r.Fatal(err)
	}
	for _, l := range listed {
		if p := r.finish(next.Rollback, l.Handle); p.Verdict != participant.RolledBack {
			r.Errorf("rollback of %s: %+v", l.Handle.Name, p)
		}
	}
	r.nothingOpen()
	r.sees(10 + 10*len(decided))
	r.commit(next, r.prepared(next, r.name(3, 1), 10), participant.Committed)
	r.sees(20 + 10*len(decided))
}

// walkedTogether is how many victims live at once.
const walkedTogether = 4

func TestRealBroker_KilledAtEveryPoint(t *testing.T) {
	addrs := servicestest.Kafka(t)
	t.Parallel()
	whole := realRig(t, addrs, nil)
	whole.leaveWork()
	voted, points, killed := whole.runVictim("")
	if killed || len(voted) != 2 || len(points) < 10 {
		t.Fatalf("unharmed it voted %d times and reached %v", len(voted), points)
	}
	room := make(chan struct{}, walkedTogether)
	for _, point := range points {
		for _, hit := range []int{1, 2} {
			name := fmt.Sprintf("L1/%s@%d", point, hit)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				room <- struct{}{}
				defer func() { <-room }()
				r := realRig(t, addrs, nil)
				r.leaveWork()
				voted, _, killed := r.runVictim(fmt.Sprintf("%s@%d=crash", point, hit))
				if !killed && hit == 1 {
					t.Fatalf("it was not killed")
				}
				r.restored(voted)
			})
		}
	}
}
