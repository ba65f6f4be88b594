package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/unisink/unisink/coordinator"
)

func TestEveryMistakeOfEveryPortIsReportedAtOnce(t *testing.T) {
	c := coordinator.Config{NodeID: "a/b", RaftBind: "0.0.0.0:7401", ClientBind: "nowhere", HTTPBind: "0.0.0.0:7402", KeepFor: -time.Hour}
	err := c.Validate()
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{"node name", "data directory", "raft address", `client address "nowhere"`, "HTTP address", "history is kept is -1h0m0s"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not mentioned in: %v", part, err)
		}
	}
	good := coordinator.Config{NodeID: "n1", DataDir: "/data", RaftBind: "127.0.0.1:7401", ClientBind: "127.0.0.1:7400"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}
