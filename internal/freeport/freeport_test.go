package freeport_test

import (
	"net"
	"testing"

	"github.com/unisink/unisink/internal/freeport"
)

func TestPortsAreFreeAndGivenOnce(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		addr, err := freeport.Loopback()
		if err != nil {
			t.Fatal(err)
		}
		if seen[addr] {
			t.Fatalf("%s was given twice", addr)
		}
		seen[addr] = true
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("%s is not free: %v", addr, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
