package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) cluster() *cli.Command {
	return group("cluster", "the coordinator group itself",
		&cli.Command{
			Name: "bootstrap", Usage: "make a group out of new nodes; once",
			ArgsUsage: "NAMESPACE",
			Description: "Every node must be running and new. The namespace names the group in the resources\n" +
				"it shares with others and never changes. Take none that another group, also one that is gone, has used for the same\n" +
				"outputs: what that one wrote would pass for this one's. The first node named is asked." +
				forExample("unisink cluster bootstrap demo --node n1=127.0.0.1:7401,127.0.0.1:7400",
					"unisink cluster bootstrap prod --node n1=10.0.0.1:7401,10.0.0.1:7400 --node n2=10.0.0.2:7401,10.0.0.2:7400 --node n3=…"),
			Flags: []cli.Flag{
				&cli.StringSliceFlag{Name: "node", Usage: "`ID=RAFT_ADDRESS,CLIENT_ADDRESS` of each node, as its serve has them; once for each"},
			},
			Action: a.bootstrap,
		},
		&cli.Command{
			Name: "status", Usage: "what each node knows of itself and of the leader", Action: a.clusterStatus,
		},
		&cli.Command{
			Name: "add", Usage: "make a running new node a member", ArgsUsage: "ID CLIENT_ADDRESS",
			Description: "The node must be running with an empty data directory. It votes once it has caught up; a repeat\n" +
				"goes on where the last one ended." + forExample("unisink cluster add n4 10.0.0.4:7400"),
			Action: a.clusterAdd,
		},
		&cli.Command{
			Name: "remove", Usage: "take a node out of the group, for ever", ArgsUsage: "ID",
			Description: "Refused when those who are left and answer would be no majority. The process of a removed node\n" +
				"ends; its data directory is of no use any more.",
			Action: a.clusterRemove,
		},
		&cli.Command{
			Name: "replace", Usage: "add a node, then remove another", ArgsUsage: "OLD_ID ID CLIENT_ADDRESS",
			Description: "For a node that is lost, and for moving to another machine. The new node has an id of its own." +
				forExample("unisink cluster replace n2 n4 10.0.0.4:7400"),
			Action: a.clusterReplace,
		},
		&cli.Command{
			Name: "raise", Usage: "let the group use what its new version brings", ArgsUsage: "[LEVEL]",
			Description: "After an upgrade of every node. Each is asked what it can follow; the level is raised as far as all\n" +
				"can, or to LEVEL. From then on no older version can follow: there is no way back.",
			Action: a.clusterRaise,
		},
		&cli.Command{
			Name: "transfer", Usage: "let the leader hand over and end its process",
			Description: "Before work on the leader's machine, and before the leader is removed. The process ends with\n" +
				"exit code 0, as if it had been told to stop.",
			Action: a.clusterTransfer,
		},
	)
}

func parseNode(s string) (*unisinkv1.Node, error) {
	id, addrs, ok := strings.Cut(s, "=")
	raft, client, ok2 := strings.Cut(addrs, ",")
	if !ok || !ok2 || id == "" {
		return nil, usagef("--node %q is not ID=RAFT_ADDRESS,CLIENT_ADDRESS", s)
	}
	for _, addr := range []string{raft, client} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, usagef("--node %q: %q is not host:port", s, addr)
		}
	}
	return &unisinkv1.Node{Id: id, RaftAddress: raft, ClientAddress: client, Voter: true}, nil
}

func (a *app) bootstrap(c *cli.Context) error {
	namespace, err := oneArg(c, "namespace")
	if err != nil {
		return err
	}
	if err := need(c, "node"); err != nil {
		return err
	}
	req := &unisinkv1.BootstrapRequest{Namespace: namespace}
	// A slice flag splits at commas, which stand inside a node.
	parts := c.StringSlice("node")
	for i := 0; i < len(parts); i++ {
		text := parts[i]
		if !strings.Contains(text, ",") && i+1 < len(parts) && !strings.Contains(parts[i+1], "=") {
			i++
			text += "," + parts[i]
		}
		n, err := parseNode(text)
		if err != nil {
			return err
		}
		req.Nodes = append(req.Nodes, n)
	}
	// The first node is asked, and no other: which one it is must not depend on who answers.
	first := req.Nodes[0]
	return a.withClientAt(c, []string{first.ClientAddress}, func(ctx context.Context, cl *participant.Client) error {
		secure, err := clientTLS(c)
		if err != nil {
			return err
		}
		if err := checkNodes(ctx, secure, req.Nodes); err != nil {
			return err
		}
		req.Meta = cl.NewMeta()
		if _, err := cl.Cluster().Bootstrap(ctx, req); err != nil {
			return fmt.Errorf("bootstrap by node %s at %s: %w", first.Id, first.ClientAddress, err)
		}
		return a.show(c, map[string]any{"namespace": namespace, "nodes": len(req.Nodes)}, func() [][]string {
			return [][]string{{"NAMESPACE", "NODES"}, {namespace, fmt.Sprint(len(req.Nodes))}}
		})
	})
}

// checkNodes asks every node that is to be bootstrapped who and where it is: a wrong address could
// not be mended afterwards. What nodes that have a group already make of it, they say themselves.
func checkNodes(ctx context.Context, secure func() *tls.Config, nodes []*unisinkv1.Node) error {
	seen := map[string]bool{}
	for _, n := range nodes {
		if seen[n.Id] {
			return usagef("node %s is named twice", n.Id)
		}
		seen[n.Id] = true
		st, err := askNode(ctx, secure, n.ClientAddress)
		switch {
		case codeOf(err) == CodeNotAllowed: // it answers
			return fmt.Errorf("nothing was done: %w", err)
		case err != nil:
			return fmt.Errorf("nothing was done, since node %s must be running and does not answer at %s: %w", n.Id, n.ClientAddress, err)
		case st.GetNode() != n.Id:
			return usagef("nothing was done: the node at %s is %q, not %q", n.ClientAddress, st.GetNode(), n.Id)
		case st.GetRaftAddress() != n.RaftAddress && st.GetRaftAddress() != "":
			return usagef("nothing was done: node %s is reached by other nodes at %s, not at %s", n.Id, st.GetRaftAddress(), n.RaftAddress)
		}
	}
	return nil
}

// nodeAnswer is what one node said of itself, or why it said nothing.
type nodeAnswer struct {
	Address string
	Error   string
	Status  *unisinkv1.StatusResponse
	err     error // what Error is the sentence of
}

// MarshalJSON has every field in every answer: "error" is empty or "status" is null.
func (n nodeAnswer) MarshalJSON() ([]byte, error) {
	status := json.RawMessage("null")
	if n.Status != nil {
		var err error
		if status, err = wireJSON.Marshal(n.Status); err != nil {
			return nil, err
		}
	}
	return json.Marshal(struct {
		Address string          `json:"address"`
		Error   string          `json:"error"`
		Status  json.RawMessage `json:"status"`
	}{n.Address, n.Error, status})
}

func (a *app) clusterStatus(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	secure, err := clientTLS(c)
	if err != nil {
		return err
	}
	if err := route.CheckAddresses(coordinators(c)); err != nil {
		return usagef("%v", err)
	}
	answers := askAll(ctx, secure, coordinators(c))
	healthy, fresh := 0, 0
	leader := false
	for _, n := range answers {
		if n.Status != nil {
			healthy++
			leader = leader || n.Status.GetLeader() != ""
			if n.Status.GetNamespace() == "" {
				fresh++
			}
		}
	}
	if healthy == 0 {
		return noStatus(answers)
	}
	if err := a.show(c, answers, func() [][]string { return statusRows(answers) }); err != nil {
		return err
	}
	switch {
	case !leader && fresh == healthy:
		return failf(CodeNoLeader, "the nodes belong to no group yet; run `unisink cluster bootstrap` once")
	case !leader:
		return failf(CodeNoLeader, "no node leads; a majority of nodes must be up")
	case healthy < len(answers):
		return failf(CodeUnhealthy, "%d of %d nodes did not answer", len(answers)-healthy, len(answers))
	}
	return nil
}

// noStatus says why not one of the nodes told of itself. One that refuses does answer.
func noStatus(answers []nodeAnswer) error {
	at := make([]string, len(answers))
	for i, n := range answers {
		if codeOf(n.err) == CodeNotAllowed {
			return n.err
		}
		at[i] = n.Address
	}
	if len(answers) == 1 && errors.Is(answers[0].err, participant.ErrUnreachable) {
		return answers[0].err // which says more
	}
	return failf(CodeNoLeader, "no coordinator answered at %s; is one running there?", strings.Join(at, ", "))
}

// askAll asks the addresses given and every node that these name.
func askAll(ctx context.Context, secure func() *tls.Config, addresses []string) []nodeAnswer {
	seen := map[string]bool{}
	var answers []nodeAnswer
	for len(addresses) > 0 {
		batch := make([]nodeAnswer, len(addresses))
		var wg sync.WaitGroup
		for i, addr := range addresses {
			seen[addr] = true
			wg.Go(func() {
				batch[i].Address = addr
				st, err := askNode(ctx, secure, addr)
				if err != nil {
					batch[i].Error, batch[i].err = sentence(err), err
					return
				}
				batch[i].Status = st
			})
		}
		wg.Wait()
		answers = append(answers, batch...)
		addresses = nil
		for _, n := range batch {
			for _, peer := range n.Status.GetNodes() {
				if addr := peer.GetClientAddress(); !seen[addr] {
					seen[addr] = true
					addresses = append(addresses, addr)
				}
			}
		}
	}
	return answers
}

func statusRows(answers []nodeAnswer) [][]string {
	rows := [][]string{{"NODE", "ADDRESS", "STATE", "LEADER", "TERM", "APPLIED", "LOG", "SNAPSHOT", "NAMESPACE", "DIGEST"}}
	for _, n := range answers {
		if n.Status == nil {
			rows = append(rows, []string{"?", n.Address, "no answer: " + n.Error, "", "", "", "", "", "", ""})
			continue
		}
		s := n.Status
		rows = append(rows, []string{
			s.GetNode(), n.Address, s.GetState(), dash(s.GetLeader()), fmt.Sprint(s.GetTerm()), fmt.Sprint(s.GetAppliedIndex()),
			fmt.Sprint(s.GetLastIndex()), fmt.Sprint(s.GetSnapshotIndex()), dash(s.GetNamespace()), s.GetStateDigest(),
		})
	}
	return rows
}
