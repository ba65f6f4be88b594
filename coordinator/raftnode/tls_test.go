package raftnode

import (
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/raftnode/devcert"
)

func newCerts(t *testing.T, nodes ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := devcert.Make(devcert.Options{Dir: dir, Nodes: nodes}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func tlsFiles(dir, node string) *TLSConfig {
	return &TLSConfig{CertFile: devcert.CertFile(dir, node), KeyFile: devcert.KeyFile(dir, node), CAFile: filepath.Join(dir, devcert.CAFile)}
}

func TestAGroupDecidesOverMutualTLS(t *testing.T) {
	t.Parallel() // it waits in real time
	dir := newCerts(t, nodeIDs...)
	nodes := threeOnDisk(t, t.TempDir(), func(c *Config) { c.TLS = tlsFiles(dir, c.NodeID) })
	for i := range 5 {
		propose(t, nodes, benchCommand(uint64(i+1)))
	}
	agree(t, nodes)
}

func TestACertificateThatDoesNotNameTheNodeIsRefusedAtStart(t *testing.T) {
	c := diskConfig(t.TempDir(), "n1")
	c.TLS = tlsFiles(newCerts(t, "n2"), "n2")
	if n, err := Open(c); err == nil {
		n.Close() //nolint:errcheck // the test has failed
		t.Error("started with another node's certificate")
	}
}

// tlsNode listens with the certificate of node, and takes who is a member from group.
func tlsNode(t *testing.T, dir, node string, group map[string]string) Transport {
	t.Helper()
	c := diskConfig("", node)
	c.TLS = tlsFiles(dir, node)
	network, err := openNetwork(c.withDefaults(), func() map[string]string { return group })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() }) //nolint:errcheck // nothing is kept
	return network
}

// playMainLoop plays the main loop of a node.
func playMainLoop(t *testing.T, to Transport) {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case rpc := <-to.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{}, nil)
			case <-done:
				return
			}
		}
	}()
}

func heartbeat(from, to Transport) error {
	request := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3}, Term: 1}
	return from.AppendEntries("peer", to.LocalAddr(), request, &raft.AppendEntriesResponse{})
}

// TestOnlyMembersOfTheGroupAreTalkedTo: each row is a peer with its certificate, and what each
// side believes about the group.
func TestOnlyMembersOfTheGroupAreTalkedTo(t *testing.T) {
	dir, foreign := newCerts(t, "n1", "n2", "n3"), newCerts(t, "n1", "n2")
	server := map[string]string{} // filled below: the members as n2 knows them
	to := tlsNode(t, dir, "n2", server)
	playMainLoop(t, to)
	here := string(to.LocalAddr())
	server["n1"], server["n2"] = "elsewhere", here
	right := map[string]string{"n1": "elsewhere", "n2": here, "n3": "elsewhere too"}
	for name, c := range map[string]struct {
		dir, node string
		group     map[string]string
		ok        bool
	}{
		"a member":                        {dir, "n1", right, true},
		"another authority":               {foreign, "n1", right, false},
		"no member, though signed":        {dir, "n3", right, false},
		"the server is not who was meant": {dir, "n1", map[string]string{"n1": "elsewhere", "n3": here}, false},
		"nobody has that address":         {dir, "n1", map[string]string{"n1": "elsewhere", "n2": "moved"}, false},
	} {
		err := heartbeat(tlsNode(t, c.dir, c.node, c.group), to)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPlainOrSilentPeerIsRefusedAndHoldsUpNobody(t *testing.T) {
	dir := newCerts(t, "n1", "n2")
	group := map[string]string{}
	to := tlsNode(t, dir, "n2", group)
	group["n1"], group["n2"] = "elsewhere", string(to.LocalAddr())
	playMainLoop(t, to)
	silent, err := net.Dial("tcp", string(to.LocalAddr()))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // nothing was said
	plain, err := openNetwork(diskConfig("", "n1").withDefaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close() //nolint:errcheck // nothing is kept
	if err := heartbeat(plain, to); err == nil {
		t.Error("a peer without TLS was answered")
	}
	if err := heartbeat(tlsNode(t, dir, "n1", group), to); err != nil {
		t.Errorf("a member was not answered: %v", err)
	}
}

func TestAnErrorOfRaftIsMappedToWhatACallerMayConclude(t *testing.T) {
	for _, c := range []struct {
		err, want error
	}{
		{raft.ErrNotLeader, ErrNotLeader},
		{raft.ErrEnqueueTimeout, ErrNotLeader},
		{raft.ErrLeadershipTransferInProgress, ErrNotLeader},
		{raft.ErrLeadershipLost, ErrUnknown},
		{raft.ErrRaftShutdown, ErrUnknown},
		{raft.ErrAbortedByRestore, ErrUnknown},
		{errDisk, ErrUnknown},
	} {
		if got := proposed(c.err); !errors.Is(got, c.want) || !errors.Is(got, c.err) {
			t.Errorf("%v means %v", c.err, got)
		}
	}
	if proposed(nil) != nil {
		t.Error("no error became one")
	}
}

func TestATransferThatNeverEndsEndsTheNode(t *testing.T) {
	stop := newFailStop(func(error) {})
	var s stuckTransfer
	now := time.Now()
	busy := raft.ErrLeadershipTransferInProgress
	s.saw(busy, now, stop)
	s.saw(nil, now.Add(8*time.Second), stop)
	s.saw(busy, now.Add(9*time.Second), stop)
	s.saw(busy, now.Add(18*time.Second), stop)
	if stop.cause() != nil {
		t.Error("ended too early")
	}
	s.saw(busy, now.Add(20*time.Second), stop)
	if !errors.Is(stop.cause(), ErrStuckTransfer) {
		t.Errorf("the cause is %v", stop.cause())
	}
}
