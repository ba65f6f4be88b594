package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// restarts is where the time of a start of the pipeline goes, over all of its runs that got so far.
type restarts struct {
	// Attach is from the start of the process to its being known to the leader: for a run whose
	// predecessor was killed the lease need not pass, for one whose was stopped it must.
	Attach times `json:"start_to_attached"`
	// Restore is from there to having fenced, finished and rolled back what was left.
	Restore times `json:"attached_to_restored"`
	// Start is from there to being told to go.
	Start times `json:"restored_to_started"`
	// Decision is from the start of the process to the first decision of its generation.
	Decision times `json:"start_to_decision"`
}

// What the pipeline's log calls things.
const (
	didAttach  = "attached"
	didRestore = "restored"
	didStart   = "started"
)

// measureRestarts reads the pipeline's log. Every instance's first generation counts.
func measureRestarts(log string, began []time.Time, t *timeline) (restarts, error) {
	data, err := os.ReadFile(log)
	if err != nil {
		return restarts{}, fmt.Errorf("read the pipeline's log: %w", err)
	}
	type steps struct {
		at         map[string]time.Time
		generation uint64
	}
	instances := map[string]*steps{}
	for line := range bytes.Lines(data) {
		var l struct {
			Time          time.Time
			Msg, Instance string
			Generation    uint64
		}
		if json.Unmarshal(line, &l) != nil || l.Instance == "" {
			continue
		}
		s := instances[l.Instance]
		if s == nil {
			s = &steps{at: map[string]time.Time{}}
			instances[l.Instance] = s
		}
		first(s.at, l.Msg, l.Time)
		if l.Msg == didStart && s.generation == 0 {
			s.generation = l.Generation
		}
	}
	var attach, restore, start, decision []time.Duration
	for _, s := range instances {
		if s.generation == 0 {
			continue // it did not come that far
		}
		process := lastBefore(began, s.at[didAttach])
		attach = append(attach, s.at[didAttach].Sub(process))
		restore = append(restore, s.at[didRestore].Sub(s.at[didAttach]))
		start = append(start, s.at[didStart].Sub(s.at[didRestore]))
		if at, ok := t.decidedAt(epoch{s.generation, 1}); ok {
			decision = append(decision, at.Sub(process))
		}
	}
	return restarts{timesOf(attach), timesOf(restore), timesOf(start), timesOf(decision)}, nil
}

func lastBefore(all []time.Time, when time.Time) (last time.Time) {
	for _, t := range all {
		if t.Before(when) {
			last = t
		}
	}
	return last
}
