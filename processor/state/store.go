package state

import (
	"context"
	"errors"
	"fmt"
)

// ErrNoPart says that a store has no part of that id.
var ErrNoPart = errors.New("no such state part")

// Store keeps snapshot parts that do not fit into a vote, where another machine can read them. Ids
// consist of letters, digits, '-', '_', '~' and '.'. All methods may be called from several
// goroutines at once.
type Store interface {
	// Name says which store it is, for people and for the state's record of where a part lies: "dir:/var/lib/app/state".
	Name() string
	// Put makes a part durable before it returns. A repeat with the same id replaces what is there;
	// ids are never used for two contents by a correct caller. Body is the caller's again on return.
	Put(ctx context.Context, id string, body []byte) error
	// Get returns a part, or ErrNoPart.
	Get(ctx context.Context, id string) ([]byte, error)
	// Delete removes a part; one that is not there is no error.
	Delete(ctx context.Context, id string) error
	// List returns the ids that begin with a prefix, sorted.
	List(ctx context.Context, prefix string) ([]string, error)
}

// CheckID refuses what is no id of a part: one that is empty, longer than 200 bytes, begins with a '.', or holds a
// character that it may not.
func CheckID(id string) error {
	ok := id != "" && len(id) <= 200 && id[0] != '.'
	for _, c := range []byte(id) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || c == '-' || c == '_' || c == '.' || c == '~')
	}
	if !ok {
		return fmt.Errorf("%q is no id of a state part", id)
	}
	return nil
}
