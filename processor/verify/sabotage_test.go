package verify_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

// shopWorld is two splits of a pipeline with a late output and dead letters, and what it wrote. Windows are of
// 20 ms, with 15 ms of allowed lateness.
func shopWorld(t *testing.T, lateness time.Duration) *world {
	t.Helper()
	w := newWorld(verify.Plan{
		Window: verify.Window{Kind: verify.Tumbling, Size: 20 * time.Millisecond, Lateness: lateness}, OnBad: verify.BadKept,
	}, true, 2, 2)
	for i, line := range []string{
		`0 {"k":"a","at":5,"v":1,"ok":true}`, `1 {"k":"b","at":5,"v":2,"ok":true}`, `0 {"k":"a","at":12,"v":3,"ok":true}`,
		`1 {"k":"b",`, `0 {"k":"a","at":25,"v":1,"ok":true}`, `1 {"k":"b","at":27,"v":1,"ok":true}`, // [0,20) fires
		`0 {"k":"a","at":7,"v":9,"ok":true}`,                                          // allowed lateness, or late
		`1 {"k":"c","at":40,"v":1,"ok":false}`, `0 {"k":"a","at":44,"v":1,"ok":true}`, // [20,40) fires
		`1 {"k":"b","at":8,"v":1,"ok":true}`, // late in any case
	} {
		var split int
		if _, err := fmt.Sscan(line[:1], &split); err != nil {
			t.Fatal(err)
		}
		r := stream.Record{Key: []byte(fmt.Sprint(i)), Value: []byte(line[2:]), Topic: "in", Partition: int32(split), Offset: int64(len(w.splits[split])), Headers: []stream.Header{{Key: "h"}}}
		w.splits[split] = append(w.splits[split], r)
		w.take(split, &r)
		if i == 5 || i == 7 {
			w.epoch.N++
		}
	}
	w.fixCut()
	w.cut.Decided, w.epoch = w.cut.Proven, w.cut.Proven
	return w
}

func (w *world) drop(list []verify.Output, holds ...string) []verify.Output {
	i := w.find(list, holds...)
	return append(list[:i:i], list[i+1:]...)
}

func (w *world) find(list []verify.Output, holds ...string) int {
	for i, o := range list {
		all := true
		for _, text := range holds {
			all = all && strings.Contains(string(o.Value), text)
		}
		if all {
			return i
		}
	}
	panic(fmt.Sprint("no output holds ", holds))
}

// TestS4_EveryDamageIsNamed: the report names the sink, the result or record, and what is wrong with it.
func TestS4_EveryDamageIsNamed(t *testing.T) {
	remake := func(w *world, sink int, change func(x *simResult), holds ...string) {
		o := &w.results[sink][w.find(w.results[sink], holds...)]
		x := w.made[o.Place]
		change(&x)
		o.Value = x.render()
	}
	for _, c := range []struct {
		name     string
		lateness time.Duration
		do       func(w *world)
		want     string // kind, sink, key and a part of why
	}{
		{"a record is lost", 0, func(w *world) {
			remake(w, 0, func(x *simResult) { x.list = x.list[1:] }, `"start":0`, `"key":"a"`)
		}, "different|s0|a|count is 1, and must be 2; 1 of its records are nowhere"},
		{"a record is doubled", 0, func(w *world) {
			remake(w, 0, func(x *simResult) { x.list = append(x.list, x.list[0]) }, `"start":0`, `"key":"a"`)
		}, "different|s0|a|count is 3, and must be 2"},
		{"a record is in its window and late", 0, func(w *world) {
			remake(w, 1, func(x *simResult) { x.list = append(x.list, simRecord{"a", 7, 9, true}) }, `"start":0`, `"key":"a"`)
		}, "different|s1|a|it holds in/0/3, which the late output holds too"},
		{"a record that was on time is late", 0, func(w *world) {
			r := w.splits[0][1]
			w.lateOut = append(w.lateOut, w.out(marked(&r, "")))
		}, "different|late|in/0/1|it is in the late output, and was on time"},
		{"a late record is dropped", 0, func(w *world) { w.lateOut = w.drop(w.lateOut, `"at":8`) }, "different|s0|b|count is 1, and must be 2"},
		{"a late record is there twice", 0, func(w *world) { w.lateOut = append(w.lateOut, w.lateOut[0]) }, "doubled|late|in/0/3|it is there 2 times"},
		{"a late record is altered", 0, func(w *world) { w.lateOut[0].Value = []byte("{}") }, "different|late|in/0/3|it is not what it was in the source"},
		{"an aggregate is wrong", 0, func(w *world) { remake(w, 0, func(x *simResult) { x.list[0].V = 77 }, `"start":20`, `"key":"b"`) }, "different|s0|b|sum is 77, and must be 1"},
		{"a dead letter is lost", 0, func(w *world) { w.dead = nil }, "missing|dead|in/1/1|it is not among the dead letters, and can't be read"},
		{"a dead letter is doubled", 0, func(w *world) { w.dead = append(w.dead, w.dead[0]) }, "doubled|dead|in/1/1|it is there 2 times"},
		{"a dead letter has no reason", 0, func(w *world) { w.dead[0].Headers = w.dead[0].Headers[2:] }, "different|dead|in/1/1|says no reason"},
		{"a dead letter was fine", 0, func(w *world) {
			r := w.splits[0][1]
			w.dead = append(w.dead, w.out(marked(&r, "because")))
		}, "different|dead|in/0/1|nothing is wrong with it"},
		{"a dead letter was filtered", 0, func(w *world) {
			r := w.splits[1][3]
			w.dead = append(w.dead, w.out(marked(&r, "because")))
		}, "different|dead|in/1/3|the record in/1/3 was filtered out, and is there"},
		{"a dead letter was never there", 0, func(w *world) {
			w.dead = append(w.dead, w.out(marked(&stream.Record{Topic: "in", Offset: 77}, "because")))
		}, "different|dead|in/0/77|no record explains it"},
		{"a key never was", 0, func(w *world) {
			x := w.made[w.results[0][0].Place]
			x.id.key = "nobody"
			w.results[0] = append(w.results[0], w.out(stream.Record{Value: x.render()}))
		}, "different|s0|nobody|no record explains it"},
		{"a filtered record has a result", 0, func(w *world) {
			x := simResult{simID{40, "c"}, 60, []simRecord{{"c", 40, 1, false}}, false}
			w.results[0] = append(w.results[0], w.out(stream.Record{Value: x.render()}))
		}, "different|s0|c|no record explains it"},
		{"a window is where none is", 0, func(w *world) {
			x := w.made[w.results[0][0].Place]
			x.id.start++
			x.end++
			w.results[0] = append(w.results[0], w.out(stream.Record{Value: x.render()}))
		}, "different|s0|a|there is no such window"},
		{"an epoch is torn", 0, func(w *world) {
			var rest []verify.Output
			for _, o := range w.results[1] {
				if o.N != 1 {
					rest = append(rest, o)
				}
			}
			w.results[1] = rest
		}, "missing|s1|a|it is not there, and in sink \"s0\" since epoch 7.1, of which nothing is here: that epoch is torn"},
		{"a sink has it in another epoch", 0, func(w *world) { w.results[1][0].N++ }, "different|s1|a|it is of epoch 7.2, and of 7.1 in sink \"s0\""},
		{"an epoch was not decided", 0, func(w *world) { w.results[0][0].N = 99 }, "different|s0|output 2|it is of epoch 7.99, and the last that was decided is 7.3"},
		{"the first result is lost", 15 * time.Millisecond, func(w *world) {
			w.results[0] = w.drop(w.results[0], `"start":0`, `"key":"a"`, `"update":false`)
		}, "missing|s0|a|its first result is not there, and updates are"},
		{"an update is lost", 15 * time.Millisecond, func(w *world) {
			w.results[0] = w.drop(w.results[0], `"start":0`, `"key":"a"`, `"update":true`)
		}, "different|s0|a|count is 2, and must be 3"},
		{"an update is doubled", 15 * time.Millisecond, func(w *world) {
			w.results[0] = append(w.results[0], w.results[0][w.find(w.results[0], `"update":true`)])
		}, "doubled|s0|a|it has 3 results, and its records explain at most 2"},
		{"the last update is wrong", 15 * time.Millisecond, func(w *world) {
			remake(w, 0, func(x *simResult) { x.list[2].V = 1 }, `"start":0`, `"key":"a"`, `"update":true`)
		}, "different|s0|a|sum is 5, and must be 13"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := shopWorld(t, c.lateness)
			if r, err := w.verify(); err != nil || r.Verdict != verify.Clean || r.Dead != 1 || r.Filtered != 1 || r.Late == 0 {
				t.Fatalf("untouched: %v, %s", err, shown(r))
			}
			c.do(w)
			r, err := w.verify()
			if err != nil {
				t.Fatal(err)
			}
			want := strings.SplitN(c.want, "|", 4)
			found := false
			for what, list := range map[string][]verify.Case{"missing": r.Missing, "doubled": r.Doubled, "different": r.Different} {
				for _, x := range list {
					found = found || what == want[0] && x.Sink == want[1] && x.Key == want[2] && strings.Contains(x.Why, want[3])
				}
			}
			foreign := slices.ContainsFunc(r.Different, func(x verify.Case) bool { return x.Foreign })
			if foreign != (c.name == "an epoch was not decided") {
				t.Errorf("a record is of nobody's epoch: %t", foreign)
			}
			if r.Verdict != verify.Broken || !found {
				t.Errorf("want %s\n%s%s", c.want, shown(r), w)
			}
		})
	}
}
