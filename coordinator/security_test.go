package coordinator_test

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/unisink/unisink/coordinator"
	"github.com/unisink/unisink/coordinator/coordinatortest"
	"github.com/unisink/unisink/coordinator/raftnode/devcert"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// certify makes certificates in a bubble, whose time they must fit: of three nodes, and of one client
// for each role.
func certify(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	makeCerts(t, devcert.Options{Dir: dir, Nodes: []string{"n1", "n2", "n3"}})
	for name, role := range map[string]string{
		"root": "admin", "olga": "operator", "vera": "viewer", "shop": "client", "worker": "member:orders", "stranger": "viewer",
	} {
		makeCerts(t, devcert.Options{Dir: dir, Clients: []string{name}, Roles: []string{role}})
	}
	return dir
}

func makeCerts(t *testing.T, o devcert.Options) {
	t.Helper()
	if err := devcert.Make(o); err != nil {
		t.Fatal(err)
	}
}

// putOrders declares the pipeline orders.
func putOrders(t *testing.T, cl *participant.Client) error {
	t.Helper()
	_, err := cl.Pipelines().PutPipeline(deadline(t, 10*time.Second), &unisinkv1.PutPipelineRequest{Meta: cl.NewMeta(), Pipeline: &unisinkv1.Pipeline{
		Name: "orders", Fingerprint: "f",
		Members: []*unisinkv1.MemberSpec{{Name: "main", Source: true, Resources: []*unisinkv1.ResourceSpec{{Name: "out", Kind: "memory"}}}},
	}})
	return err
}

func refusedAs(err error, reason string) bool {
	got, _ := grpcerr.Reason(err)
	return got == reason
}

// Through a follower and at the leader alike it is the first caller that is judged.
func TestAFollowerHandsOnWhoseCallItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := certify(t)
		c := coordinatortest.StartSecure(t, 3, dir, "root", nil)
		leader := c.Leader()
		for _, id := range c.IDs() {
			at := func(name string) *participant.Client {
				return c.ClientWith(coordinatortest.Secure(t, dir, name), coordinatortest.Address(id))
			}
			if err := putOrders(t, at("vera")); !refusedAs(err, grpcerr.NotAllowed) {
				t.Errorf("a viewer's pipeline through %s (leader %s): %v", id, leader, err)
			}
			if err := putOrders(t, at("")); !refusedAs(err, grpcerr.NotAllowed) || !strings.Contains(err.Error(), "without a certificate") {
				t.Errorf("nobody's pipeline through %s (leader %s): %v", id, leader, err)
			}
			if out, err := at("shop").Commit(deadline(t, 10*time.Second), txnID(t), branches()); err != nil || out != participant.OutcomeCommitted {
				t.Errorf("a client's transaction through %s (leader %s): %v, %v", id, leader, out, err)
			}
			olga := at("olga")
			if _, err := olga.Pipelines().ListPipelines(deadline(t, 10*time.Second), &unisinkv1.ListPipelinesRequest{}); err != nil {
				t.Errorf("an operator's question through %s: %v", id, err)
			}
		}
		if err := putOrders(t, c.ClientWith(coordinatortest.Secure(t, dir, "olga"))); err != nil {
			t.Error(err)
		}
		c.AssertSameState()
	})
}

// rotate replaces the authority and every certificate in dir by those of another authority.
func rotate(t *testing.T, dir string) {
	t.Helper()
	other := certify(t)
	for _, pattern := range []string{"*.pem"} {
		files, err := filepath.Glob(filepath.Join(other, pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			if err := os.Rename(f, filepath.Join(dir, filepath.Base(f))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// keep is a directory with copies of the files, of which it remains what it was.
func keep(t *testing.T, dir string) string {
	t.Helper()
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return old
}

func TestAnAuthorityIsReplacedWhileEverybodyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := certify(t)
		c := coordinatortest.StartSecure(t, 3, dir, "root", nil)
		old := coordinatortest.Secure(t, keep(t, dir), "shop")
		left, stays := c.ClientWith(old), c.ClientWith(coordinatortest.Secure(t, dir, "shop"))
		commit := func(cl *participant.Client) error {
			_, err := cl.Commit(deadline(t, 5*time.Second), txnID(t), branches())
			return err
		}
		if err := errors.Join(commit(left), commit(stays)); err != nil {
			t.Fatal(err)
		}
		rotate(t, dir)
		time.Sleep(2 * time.Second)
		if err := commit(left); err == nil {
			t.Error("a connection that began under the old authority goes on")
		}
		if err := commit(c.ClientWith(old)); err == nil {
			t.Error("a new connection under the old authority is served")
		}
		for _, id := range c.IDs() { // among them followers, which connect to the leader anew
			if err := commit(c.ClientWith(coordinatortest.Secure(t, dir, "shop"), coordinatortest.Address(id))); err != nil {
				t.Errorf("through %s: %v", id, err)
			}
		}
		if err := commit(stays); err != nil {
			t.Errorf("a client that has the new files: %v", err)
		}
	})
}

func TestACertificateThatEndsIsReplacedWhileItsClientRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := certify(t)
		c := coordinatortest.StartSecure(t, 1, dir, "root", nil)
		for _, name := range []string{"shop", "n1"} { // as old as the authority lets them be
			for _, f := range []string{devcert.CertFile(dir, name), devcert.KeyFile(dir, name)} {
				if err := os.Remove(f); err != nil {
					t.Fatal(err)
				}
			}
		}
		makeCerts(t, devcert.Options{Dir: dir, Nodes: []string{"n1"}})
		makeCerts(t, devcert.Options{Dir: dir, Clients: []string{"shop"}, Roles: []string{"client"}, Valid: time.Hour})
		client, idle := c.ClientWith(coordinatortest.Secure(t, dir, "shop")), c.ClientWith(coordinatortest.Secure(t, keep(t, dir), "shop"))
		commit := func(cl *participant.Client) error {
			_, err := cl.Commit(deadline(t, 5*time.Second), txnID(t), branches())
			return err
		}
		if err := errors.Join(commit(client), commit(idle)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		for _, f := range []string{devcert.CertFile(dir, "shop"), devcert.KeyFile(dir, "shop")} {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		makeCerts(t, devcert.Options{Dir: dir, Clients: []string{"shop"}, Roles: []string{"client"}, Valid: time.Hour})
		time.Sleep(20 * time.Minute)
		if err := commit(client); err != nil {
			t.Errorf("a client whose certificate was renewed: %v", err)
		}
		if err := commit(idle); err == nil {
			t.Error("a client whose certificate has ended is served")
		}
	})
}

func TestRolesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := certify(t)
		roles := filepath.Join(dir, "roles")
		write := func(text string) {
			if err := os.WriteFile(roles, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		write("root admin\nvera operator\n")
		c := coordinatortest.StartSecure(t, 1, dir, "root", func(cfg *coordinator.Config) { cfg.RolesFile = roles })
		vera, olga := c.ClientWith(coordinatortest.Secure(t, dir, "vera")), c.ClientWith(coordinatortest.Secure(t, dir, "olga"))
		if err := putOrders(t, olga); !refusedAs(err, grpcerr.NotAllowed) {
			t.Errorf("a name that is not in the file: %v", err)
		}
		if err := putOrders(t, vera); err != nil {
			t.Error(err)
		}
		write("root admin\nvera viewer operators\n") // a mistake changes nothing
		list := func(cl *participant.Client) error {
			_, err := cl.Pipelines().SetDesired(deadline(t, 5*time.Second), &unisinkv1.SetDesiredRequest{
				Meta: cl.NewMeta(), Name: "orders", Desired: unisinkv1.DesiredState_DESIRED_STATE_RUNNING,
			})
			return err
		}
		if err := list(vera); err != nil {
			t.Errorf("after a mistake in the file: %v", err)
		}
		write("root admin\nvera viewer\nolga operator\n")
		if err := list(vera); !refusedAs(err, grpcerr.NotAllowed) {
			t.Errorf("a role that was taken away: %v", err)
		}
		if err := list(olga); err != nil {
			t.Errorf("a role that was given: %v", err)
		}
	})
}

// A member of another pipeline, and one without a role, do not get in; its own does.
func TestAMemberAttachesToItsOwnPipelineAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := certify(t)
		makeCerts(t, devcert.Options{Dir: dir, Clients: []string{"biller"}, Roles: []string{"member:bills"}})
		c := coordinatortest.StartSecure(t, 3, dir, "root", nil)
		if err := putOrders(t, c.Client()); err != nil {
			t.Fatal(err)
		}
		attach := func(name string) error {
			cl := c.ClientWith(coordinatortest.Secure(t, dir, name), coordinatortest.Address(c.Leader()))
			ctx := deadline(t, 5*time.Second)
			stream, err := unisinkv1.NewSessionClient(cl.Router()).Attach(ctx, &unisinkv1.AttachRequest{
				Scope: &unisinkv1.Scope{Pipeline: "orders"}, Member: "main", Instance: name, Fingerprint: "f",
				Resources: []*unisinkv1.ResourceInfo{{Name: "out", Kind: "memory", Identity: "i", HasBranches: true}},
			})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		for _, name := range []string{"biller", "olga", "root", ""} {
			if err := attach(name); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%q attached to orders: %v", name, err)
			}
		}
		if err := attach("worker"); err != nil {
			t.Errorf("its own member: %v", err)
		}
	})
}

func TestAForeignCertificateGetsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, other := certify(t), certify(t)
		c := coordinatortest.StartSecure(t, 1, dir, "root", nil)
		mixed := t.TempDir()
		for file, from := range map[string]string{"ca.pem": dir, "root.pem": other, "root-key.pem": other} {
			content, err := os.ReadFile(filepath.Join(from, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(mixed, file), content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, secure := range map[string]func() *tls.Config{
			"signed by others":   coordinatortest.Secure(t, mixed, "root"),
			"that trusts others": coordinatortest.Secure(t, other, "root"),
			"in plain text":      nil,
		} {
			if _, err := c.ClientWith(secure).Cluster().Status(deadline(t, 2*time.Second), &unisinkv1.StatusRequest{}); err == nil {
				t.Errorf("a client %s was served", name)
			}
		}
	})
}
