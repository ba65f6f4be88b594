package devcert_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/coordinator/raftnode/devcert"
)

func ExampleMake() {
	dir, err := os.MkdirTemp("", "certs")
	if err != nil {
		panic(err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			panic(err)
		}
	}()
	if err := devcert.Make(devcert.Options{Dir: dir, Nodes: []string{"n1"}}); err != nil {
		panic(err)
	}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		fmt.Println(f.Name())
	}
	// Output:
	// ca-key.pem
	// ca.pem
	// n1-key.pem
	// n1.pem
}

func TestACertificateNamesItsNodeAndVerifiesForBothSides(t *testing.T) {
	dir := t.TempDir()
	o := devcert.Options{Dir: dir, Nodes: []string{"n1", "n2"}, Hosts: []string{"10.0.0.7", "unisink.example", "n2"}}
	if err := devcert.Make(o); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, devcert.CAFile))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(devcert.CertFile(dir, "n1"), devcert.KeyFile(dir, "n1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"n1", "localhost", "127.0.0.1", "::1", "10.0.0.7", "unisink.example"} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			_, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, KeyUsages: []x509.ExtKeyUsage{use}})
			if err != nil {
				t.Errorf("%s: %v", host, err)
			}
		}
	}
	if slices.Contains(pair.Leaf.DNSNames, "n2") {
		t.Error("the certificate of n1 also names n2")
	}
}

func TestFilesAreForTheirOwnerAloneAndNeverOverwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := devcert.Make(devcert.Options{Dir: dir, Nodes: []string{"n1"}}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
	before, err := os.ReadFile(devcert.CertFile(dir, "n1"))
	if err != nil {
		t.Fatal(err)
	}
	err = devcert.Make(devcert.Options{Dir: dir, Nodes: []string{"n2", "n1"}})
	if err == nil || !strings.Contains(err.Error(), "n1.pem exists already") {
		t.Errorf("made again: %v", err)
	}
	after, err := os.ReadFile(devcert.CertFile(dir, "n1"))
	if err != nil || string(before) != string(after) {
		t.Errorf("the certificate was replaced: %v", err)
	}
	if _, err := os.Stat(devcert.CertFile(dir, "n2")); !os.IsNotExist(err) {
		t.Error("something was written although Make refused")
	}
	if err := devcert.Make(devcert.Options{Dir: dir, Nodes: []string{"n2"}}); err != nil {
		t.Errorf("a further node of the same authority: %v", err)
	}
}

func TestAnAuthorityThatIsIncompleteOrOddIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := devcert.Make(devcert.Options{Dir: dir, Nodes: []string{"n1"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, devcert.CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	for _, nodes := range [][]string{{"n2"}, nil, {""}, {"../n3"}, {"ca"}} {
		if err := devcert.Make(devcert.Options{Dir: dir, Nodes: nodes}); err == nil {
			t.Errorf("made for %q", nodes)
		}
	}
}
