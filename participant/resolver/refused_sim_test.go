package resolver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/participant/resolver"
)

// Wrong credentials for one resource are a person's to mend, who reads which one it is and what to do. The others go on.
func TestAResourceThatRefusesItsCredentialsIsNamedAndTheOthersGoOn(t *testing.T) {
	bubble(t, 1, 200*time.Millisecond, func(t *testing.T, r *rig) {
		p := r.start(func(_ *process, call participanttest.Call, when participanttest.When) error {
			if call == participanttest.CallCommit && when == participanttest.Before {
				return errors.New("stuck") // what is decided stays prepared
			}
			return nil
		})
		r.until(20*time.Second, "both are prepared", func() bool { return len(r.stores["out"].Prepared()) > 0 && len(r.stores["dir"].Prepared()) > 0 })
		p.kill()
		var log bytes.Buffer
		s := r.resolve(func(c *resolver.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c.Resources[0].Finisher.(*participanttest.Memory).SetHook(func(_ context.Context, call participanttest.Call, _ participanttest.When, _ string) error {
				if call == participanttest.CallDescribe {
					return fmt.Errorf("log in: %w: password refused", participant.ErrMisconfigured)
				}
				return nil
			})
		})
		r.until(lease+time.Second, "the other is finished", func() bool { return len(r.stores["dir"].Prepared()) == 0 })
		if len(r.stores["out"].Prepared()) == 0 {
			t.Error("it was finished without having been reached")
		}
		time.Sleep(6 * time.Second) // a report comes every 5
		var told []string
		for _, x := range r.told().GetResources() {
			told = append(told, x.GetTrouble())
		}
		s.stop()
		want := "log in: misconfigured: password refused; mend it there, or give this resolver other settings and start it again"
		if !strings.Contains(strings.Join(told, "\n"), want) {
			t.Errorf("operators read %q", told)
		}
		if !strings.Contains(log.String(), `level=ERROR msg="resource not reached, trying again" resource="out: `) || !strings.Contains(log.String(), want) {
			t.Errorf("the log says\n%s", log.String())
		}
	})
}
