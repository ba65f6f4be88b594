package orders

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/participant"
)

var (
	// ErrUnreachable is wrapped when no broker answers.
	ErrUnreachable = errors.New("no Kafka broker answers")
	// ErrNoTopic is wrapped when a topic does not exist.
	ErrNoTopic = errors.New("unknown topic")
)

// Check looks at what the pipeline will read and write, and changes nothing. Its error is about one
// thing that a person can mend.
func Check(ctx context.Context, c Config) error {
	if info, err := os.Stat(c.Dir); err == nil && !info.IsDir() {
		return fmt.Errorf("%w: %s is a file, and the pipeline writes into a directory; name another with --dir", participant.ErrMisconfigured, c.Dir)
	}
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: c.Brokers})
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.Reach(ctx); err != nil {
		return &unreachable{err}
	}
	for _, t := range []struct{ topic, flag string }{{c.From, "--from"}, {c.To, "--to"}} {
		if _, found, err := admin.TopicExists(ctx, t.topic); err != nil {
			return err
		} else if !found {
			return fmt.Errorf("%w: the brokers at %v have no topic %q; create it, or name another with %s", ErrNoTopic, c.Brokers, t.topic, t.flag)
		}
	}
	return nil
}

// unreachable is ErrUnreachable in the adapter's words.
type unreachable struct{ err error }

func (u *unreachable) Error() string   { return u.err.Error() }
func (u *unreachable) Unwrap() []error { return []error{ErrUnreachable, u.err} }
