package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func sec(n float64) time.Time { return noon.Add(time.Duration(n * float64(time.Second))) }

// logged is a timeline of lines "second message epoch text".
func logged(t *testing.T, lines ...[4]any) *timeline {
	t.Helper()
	name := filepath.Join(t.TempDir(), "n1.log")
	var text string
	for _, l := range lines {
		text += fmt.Sprintf(`{"time":%q,"msg":%q,"epoch":%q,"text":%q}`+"\n", sec(l[0].(float64)).Format(time.RFC3339Nano), l[1], l[2], l[3])
	}
	text += `{"time":"torn by a kill`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	line := newTimeline(name)
	if err := line.update(); err != nil {
		t.Fatal(err)
	}
	return line
}

func TestAMomentIsWhatTheLogsShow(t *testing.T) {
	line := logged(
		t, [4]any{0.0, saidOpened, "1.0", ""}, [4]any{0.5, saidStarted, "1.0", ""},
		[4]any{1.0, saidVote, "1.1", votedYes}, [4]any{1.2, saidDecided, "1.1", ""}, [4]any{1.4, saidProven, "1.1", ""},
		[4]any{2.0, saidVote, "1.2", "readonly"}, [4]any{2.2, saidDecided, "1.2", ""},
		[4]any{3.0, saidVote, "1.3", votedYes}, [4]any{3.5, saidClosed, "1.2", ""},
	)
	for _, c := range []struct {
		at   float64
		want moment
	}{
		{0.2, moment{Restoring: true}},
		{0.8, moment{}},
		{1.1, moment{RoundOpen: true}},
		{1.3, moment{Unfinished: true}},
		{1.5, moment{}},
		{2.1, moment{}}, // nothing to commit
		{3.2, moment{RoundOpen: true}},
		{3.6, moment{}}, // the close ended the round
	} {
		if got := line.at(sec(c.at)); got != c.want {
			t.Errorf("at %.1f s: %+v, want %+v", c.at, got, c.want)
		}
	}
	if open := line.open(); len(open) != 0 {
		t.Errorf("open: %v, want none: 1.3 was never decided", open)
	}
}

func TestAGenerationHasAnAgeWhileItRuns(t *testing.T) {
	running := [][4]any{{0.0, saidOpened, "1.0", ""}, {0.5, saidStarted, "1.0", ""}}
	if age := logged(t, running...).age(sec(3)); age != 2500*time.Millisecond {
		t.Errorf("age %s, want 2.5s", age)
	}
	closed := append(running, [4]any{1.0, saidClosed, "1.4", ""})
	if age := logged(t, closed...).age(sec(3)); age != 0 {
		t.Errorf("age of a closed one %s, want 0", age)
	}
	next := append(closed, [4]any{1.1, saidOpened, "2.0", ""})
	if age := logged(t, next...).age(sec(3)); age != 0 {
		t.Errorf("age of one that has not started %s, want 0", age)
	}
}

func TestADecidedEpochWithoutProofIsLeftOpen(t *testing.T) {
	line := logged(t, [4]any{1.0, saidVote, "4.7", votedYes}, [4]any{1.2, saidDecided, "4.7", ""})
	if open := line.open(); len(open) != 1 || open[0] != "4.7" {
		t.Errorf("open: %v, want 4.7", open)
	}
}

func TestAFactHasTheFirstTimeThatAnyNodeLogged(t *testing.T) {
	line := logged(t, [4]any{1.4, saidDecided, "1.1", ""}, [4]any{1.2, saidDecided, "1.1", ""}, [4]any{1.6, saidDecided, "1.1", ""})
	if at, ok := line.decidedAt(epoch{1, 1}); !ok || !at.Equal(sec(1.2)) {
		t.Errorf("decided at %v, want %v", at, sec(1.2))
	}
}

func TestAKillCountsOnlyAfterADecision(t *testing.T) {
	line := logged(t, [4]any{1.0, saidDecided, "1.1", ""}, [4]any{4.0, saidDecided, "1.2", ""})
	var r Report
	r.judge(line, []strike{
		{What: killPipeline, At: sec(2)}, {What: killBroker, At: sec(3)}, {What: stopPipeline, At: sec(5)}, {What: killLeader, At: sec(6)},
	})
	if r.Kills[killPipeline] != 1 || r.Kills[killBroker] != 0 || r.Kills[killLeader] != 1 || r.Kills[stopPipeline] != 0 {
		t.Errorf("counted %v, want the first and the last kill alone", r.Kills)
	}
	if r.All[killBroker] != 1 || r.All[stopPipeline] != 1 {
		t.Errorf("all strikes %v lack some", r.All)
	}
}

func TestTheVerdictIsCleanOnlyIfEnoughWasDone(t *testing.T) {
	r := Report{}
	r.Short = r.tooFew(Config{Minutes: 1, Sinks: kafkaAndFiles}.quotas())
	if r.conclude(); r.Verdict != incomplete {
		t.Errorf("the verdict of a run that did nothing is %q", r.Verdict)
	}
	r = Report{}
	r.Missing = []string{"a/before"}
	r.Short = r.tooFew(quotas{})
	if r.conclude(); r.Verdict != incomplete || len(r.Short) != 1 {
		t.Errorf("the verdict without one fault point is %q, %v", r.Verdict, r.Short)
	}
	r = Report{}
	r.Left = []string{"transaction x is Ongoing"}
	if r.conclude(); r.Verdict != broken {
		t.Errorf("the verdict with something left behind is %q", r.Verdict)
	}
	r = Report{}
	if r.conclude(); r.Verdict != clean {
		t.Errorf("the verdict of what is clean is %q", r.Verdict)
	}
}

func TestCrashesAreCountedAsLogged(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipeline.log")
	text := "{\"msg\":\"started\"}\nfault: crash at file/after-fsync, hit 2\nfault: pause at file/x, hit 1\nfault: crash at file/after-fsync, hit 1\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, torn, err := crashes(name)
	if err != nil || len(got) != 1 || got["file/after-fsync"] != 2 || torn != 0 {
		t.Errorf("crashes %v, torn %d, %v", got, torn, err)
	}
	if left := missing([]string{"file/after-fsync", "kafka/after-init"}, got); len(left) != 1 || left[0] != "kafka/after-init" {
		t.Errorf("missing %v", left)
	}
}

// The points of rooms that a form of a run does not come by must not make it incomplete, and a room that is new must.
func TestEveryFormIsLedToThePointsOfItsSinks(t *testing.T) {
	names := []string{"checkpoint/x", "file/x", "kafka/before-repair", "kafka/x", "new/x", "postgres/before-finish", "postgres/before-move", "postgres/before-prepare", "state/x", "twophase/x"}
	for _, c := range []struct {
		sinks, mode string
		led, corner []string
		others      int
	}{
		{kafkaAndFiles, prepared, []string{"checkpoint/x", "file/x", "kafka/x", "new/x", "state/x"}, []string{"kafka/before-repair"}, 4},
		{allSinks, prepared, []string{"new/x", "postgres/before-finish", "postgres/before-prepare"}, nil, 7},
		{allSinks, staged, []string{"new/x", "postgres/before-move", "postgres/before-prepare"}, nil, 7},
	} {
		p := Config{Sinks: c.sinks, Mode: c.mode}.sort(names)
		if !slices.Equal(p.led, c.led) || !slices.Equal(p.cornered, c.corner) || len(p.others) != c.others {
			t.Errorf("%s, %s: led %v, cornered %v, others %v", c.sinks, c.mode, p.led, p.cornered, p.others)
		}
	}
}

// A quarter of an hour is 200 kills, at most ten of the broker, and 20 at each of the two moments that matter most.
func TestAQuarterOfAnHourOfAllSinksIsTwoHundredKills(t *testing.T) {
	q := Config{Minutes: 15, Sinks: allSinks}.quotas()
	if q.kills != 200 || q.moments != 20 || q.brokers > maxBrokers || q.pauses+q.leaderStops != 0 {
		t.Errorf("%+v", q)
	}
	if again := q.again(0); again.brokers != 0 || again.databases == 0 {
		t.Errorf("the next round: %+v", again)
	}
}
