package barrier_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/unisink/unisink/processor/barrier"
	"github.com/unisink/unisink/processor/stream"
)

// TestARecordIsInTheEpochOfTheBarrierBehindIt: whatever the interleaving of inputs, the stage's
// cut has from every input exactly what stood before that input's barrier.
func TestARecordIsInTheEpochOfTheBarrierBehindIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inputs := rapid.IntRange(1, 4).Draw(t, "inputs")
		epochs := rapid.IntRange(1, 5).Draw(t, "epochs")
		endsBefore := make([]int, inputs) // the input ends before the barrier of this epoch; 0: never
		queues := make([][]stream.Barrier, inputs)
		for i := range queues {
			if i > 0 && rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
				endsBefore[i] = rapid.IntRange(1, epochs).Draw(t, "before")
			}
			for n := 1; n <= epochs; n++ {
				if n == endsBefore[i] {
					break
				}
				for range rapid.IntRange(0, 3).Draw(t, "records") {
					queues[i] = append(queues[i], stream.Barrier{}) // a record
				}
				queues[i] = append(queues[i], stream.Barrier{Generation: 7, N: uint64(n), Final: n == epochs})
			}
		}
		a := barrier.NewAligner(inputs, 7)
		passed := make([]uint64, inputs) // barriers read from each input
		over := make([]bool, inputs)
		var aligned uint64
		take := func(b stream.Barrier, ok bool) {
			if !ok {
				return
			}
			aligned++
			if b.N != aligned || b.Final != (int(aligned) == epochs) {
				t.Fatalf("aligned %+v, want epoch %d", b, aligned)
			}
			for i := range inputs {
				if passed[i] != aligned && !over[i] {
					t.Fatalf("epoch %d is aligned and input %d has passed %d", aligned, i, passed[i])
				}
			}
		}
		for step := 0; aligned < uint64(epochs); step++ {
			var ready []int
			for i := range inputs {
				if !over[i] && !a.Blocked(i) {
					ready = append(ready, i)
				}
			}
			if len(ready) == 0 {
				t.Fatal("every input is blocked")
			}
			i := rapid.SampledFrom(ready).Draw(t, "input")
			if len(queues[i]) == 0 {
				over[i] = true
				take(a.End(i))
				continue
			}
			b := queues[i][0]
			queues[i] = queues[i][1:]
			if b.N == 0 {
				if passed[i] != aligned {
					t.Fatalf("a record of epoch %d was read while %d is being written", passed[i]+1, aligned+1)
				}
				continue
			}
			passed[i] = b.N
			out, ok, err := a.Arrive(i, b)
			if err != nil {
				t.Fatal(err)
			}
			take(out, ok)
		}
		for i := range inputs {
			if !a.Blocked(i) {
				t.Fatalf("input %d may be read after the final barrier", i)
			}
		}
	})
}

func TestABrokenStreamIsNoticed(t *testing.T) {
	for name, arrive := range map[string][]stream.Barrier{
		"skips":            {{Generation: 7, N: 2}},
		"repeats":          {{Generation: 7, N: 1}, {Generation: 7, N: 1}},
		"newer generation": {{Generation: 8, N: 1}},
	} {
		a := barrier.NewAligner(2, 7)
		var err error
		for _, b := range arrive {
			_, _, err = a.Arrive(0, b)
		}
		if !errors.Is(err, barrier.ErrOrder) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	a := barrier.NewAligner(2, 7)
	if _, ok, err := a.Arrive(0, stream.Barrier{Generation: 6, N: 9}); ok || err != nil || a.Blocked(0) {
		t.Errorf("an old generation's barrier counts: %v, %v", ok, err)
	}
	if _, _, err := a.Arrive(0, stream.Barrier{Generation: 7, N: 1}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Arrive(1, stream.Barrier{Generation: 7, N: 1, Final: true}); !errors.Is(err, barrier.ErrOrder) {
		t.Errorf("inputs that disagree: %v", err)
	}
}

// TestP15_EveryBarrierOnceInOrder: however orders are lost and repeated, each is injected once.
func TestP15_EveryBarrierOnceInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := barrier.NewInjector(3)
		newest, injected := uint64(0), uint64(0)
		for range rapid.IntRange(1, 20).Draw(t, "orders") {
			n := rapid.Uint64Range(1, newest+3).Draw(t, "n")
			out, err := in.Order(stream.Barrier{Generation: 3, N: n})
			if err != nil {
				t.Fatal(err)
			}
			newest = max(newest, n)
			for _, b := range out {
				injected++
				if b.N != injected {
					t.Fatalf("injected %d, want %d", b.N, injected)
				}
			}
			if injected != newest {
				t.Fatalf("injected through %d, ordered through %d", injected, newest)
			}
		}
		if out, err := in.Order(stream.Barrier{Generation: 2, N: newest + 1}); out != nil || err != nil {
			t.Fatalf("an old generation's order: %v, %v", out, err)
		}
		final := stream.Barrier{Generation: 3, N: newest + 2, Final: true, Drain: true}
		out, err := in.Order(final)
		if err != nil || len(out) != 2 || out[0].Final || out[1] != final {
			t.Fatalf("final: %+v, %v", out, err)
		}
		if out, err := in.Order(final); out != nil || err != nil {
			t.Fatalf("final again: %+v, %v", out, err)
		}
		for _, b := range []stream.Barrier{{Generation: 3, N: newest + 3}, {Generation: 4, N: 1}, {Generation: 3}} {
			if _, err := in.Order(b); !errors.Is(err, barrier.ErrOrder) {
				t.Fatalf("%+v after the final one: %v", b, err)
			}
		}
	})
}

func ExampleAligner() {
	a := barrier.NewAligner(2, 1)
	_, aligned, _ := a.Arrive(0, stream.Barrier{Generation: 1, N: 1})
	fmt.Println("first:", aligned, "input 0 blocked:", a.Blocked(0))
	b, aligned, _ := a.Arrive(1, stream.Barrier{Generation: 1, N: 1})
	fmt.Println("second:", aligned, "epoch:", b.N, "input 0 blocked:", a.Blocked(0))
	// Output:
	// first: false input 0 blocked: true
	// second: true epoch: 1 input 0 blocked: false
}
