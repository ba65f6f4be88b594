package server

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unisink/unisink/coordinator/access"
	"github.com/unisink/unisink/coordinator/ledger"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

type noSessions struct {
	unisinkv1.UnimplementedSessionServer
}

func (noSessions) Living(ledger.ScopeID) Living { return Living{} }

// Whoever adds a method says who may call it: one without a rule is denied to everybody, and found here.
func TestEveryMethodThatIsServedHasARule(t *testing.T) {
	s := New(Config{
		Node: shown{m: ledger.New()}, Sessions: noSessions{}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Reflection: true,
	})
	methods := 0
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			methods++
			if name := "/" + service + "/" + m.Name; !access.HasRule(name) {
				t.Errorf("%s has no rule; say in coordinator/access/rules.go who may call it", name)
			}
		}
	}
	if methods < 30 {
		t.Errorf("only %d methods were looked at", methods)
	}
}
