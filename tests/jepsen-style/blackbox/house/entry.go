package house

import (
	"encoding/json"
	"fmt"
)

// The calls that workers make.
const (
	OpBegin   = "begin"
	OpCommit  = "commit"  // the bare call, both branches being prepared
	OpRun     = "run"     // the SDK's whole way: it may ask for an abort by itself
	OpOutcome = "outcome" // aborts what nobody knows
	OpAbort   = "abort"
	OpSweep   = "sweep" // asks for the outcome of whatever it finds
)

// Entry is what a transfer does to one account.
type Entry struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// String is the entry as a record of the accounts.
func (e Entry) String() string { return fmt.Sprintf("%s %d", e.Account, e.Cents) }

// ParseEntry reads a record, as String or as JSON has it.
func ParseEntry(s string) (e Entry, err error) {
	if len(s) > 0 && s[0] == '{' {
		err = json.Unmarshal([]byte(s), &e)
	} else {
		_, err = fmt.Sscanf(s, "%s %d", &e.Account, &e.Cents)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%q is no entry of an account: %w", s, err)
	}
	return e, nil
}
