package session

import (
	"errors"
	"testing"

	"github.com/unisink/unisink/internal/grpcerr"
)

// A caller that is told to look for another leader would go round for ever with a command that no log takes.
func TestACommandThatIsTooLargeIsNotSentToAnotherLeader(t *testing.T) {
	tooLarge := errors.New("command too large: 2000000 bytes")
	m := New(Config{
		Unknown:  func(error) bool { return false },
		TooLarge: func(err error) bool { return errors.Is(err, tooLarge) },
	})
	if reason, _ := grpcerr.Reason(m.proposal(tooLarge)); reason != grpcerr.Invalid {
		t.Errorf("too large: %q", reason)
	}
	if reason, _ := grpcerr.Reason(m.proposal(errNotTaken)); reason != grpcerr.NotLeader {
		t.Errorf("not taken: %q", reason)
	}
}
