package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// kinds are the names under which the kinds are saved. They are added to and never changed, so that an
// old history can be judged again.
var kinds = [...]string{
	kindUnset: "", Note: "note", Fault: "fault", Healed: "healed", Quiet: "quiet", Opened: "opened", Begun: "begun", Prepared: "prepared",
	Committed: "committed", RolledBack: "rolled back", Held: "held", Barrier: "barrier", Voted: "voted", Started: "started",
	Decided: "decided", Closed: "closed", Heuristic: "heuristic", Leads: "leads", State: "state", Entry: "entry", Invoke: "invoke",
	Return: "return", Rewound: "rewound", Record: "record", Minority: "minority", MinorityEnd: "minority end", Said: "said",
}

func (k Kind) String() string { return kinds[k] }

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(kinds[k]), nil }

// UnmarshalText reads a kind's name.
func (k *Kind) UnmarshalText(text []byte) error {
	i := slices.Index(kinds[:], string(text))
	if i < 1 {
		return fmt.Errorf("%q is no kind of event", text)
	}
	*k = Kind(i)
	return nil
}

// MarshalText writes the answer as a person reads it.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (a *Answer) UnmarshalText(text []byte) error {
	for i := range AnswerDone + 1 {
		if i.String() == string(text) {
			*a = i
			return nil
		}
	}
	return fmt.Errorf("%q is no answer", text)
}

// Write saves events, one JSON object a line.
func Write(w io.Writer, events ...Event) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			return fmt.Errorf("save a history: %w", err)
		}
	}
	return nil
}

// Read reads what Write has saved. A last line that was torn, by a death of the writer, is left out.
func Read(r io.Reader) ([]Event, error) {
	var all []Event
	in := bufio.NewReader(r)
	for nr := 1; ; nr++ {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read a history: %w", err)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read a history, line %d: %w", nr, err)
		}
		all = append(all, e)
	}
}
