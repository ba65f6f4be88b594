package participant_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
)

// fullJournal has room for what opening notes, and not for what is begun.
type fullJournal struct{ participant.Journal }

func (j fullJournal) Update(ctx context.Context, key string, change func([]byte) ([]byte, error)) error {
	if strings.HasPrefix(key, "t/") {
		return errors.New("disk full")
	}
	return j.Journal.Update(ctx, key, change)
}

// What cannot be noted is found by nobody, so whoever has begun it ends it.
func TestL1_WhatCannotBeNotedIsAbortedAtOnce(t *testing.T) {
	for name, change := range map[string]func(*participant.TwoPhaseConfig[string]){
		"no text": func(c *participant.TwoPhaseConfig[string]) {
			c.Encode = func(string) ([]byte, error) { return nil, errors.New("no text") }
			c.Decode = func(data []byte) (string, error) { return string(data), nil }
		},
		"disk full": func(c *participant.TwoPhaseConfig[string]) { c.Journal = fullJournal{c.Journal} },
	} {
		for _, stuck := range []bool{false, true} {
			d := newDesk()
			r := twoPhase(t, d, filepath.Join(t.TempDir(), "journal"), change)
			openDesk(t, r, 1)
			b := beginDesk(t, d, r, under(1, 1))
			if stuck {
				d.fail = func(string, string) error { return participant.ErrLost }
			}
			_, err := participant.TransactionOf[string](t.Context(), b)
			if err == nil || !strings.Contains(err.Error(), name) || errors.Is(err, participant.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
			if aborted := slices.Contains(d.calls, "abort t1"); aborted == stuck {
				t.Errorf("%s, with a service that is stuck %t: it was told %q", name, stuck, d.calls)
			}
		}
	}
}
