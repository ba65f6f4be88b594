// Package freeport finds loopback addresses for child processes that listen by themselves.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The range lies below the ports that systems hand out to outgoing connections (from 32768 on
// Linux, from 49152 elsewhere): between the look and the child's own listen nobody gets such a
// port by chance.
const (
	first = 20000
	last  = 32000
	tries = 200
)

var (
	mu    sync.Mutex // guards given
	given = map[int]bool{}
)

// Loopback returns "127.0.0.1:port" where nobody listens now. It never returns the same port
// twice in one process.
func Loopback() (string, error) {
	mu.Lock()
	defer mu.Unlock()
	var lastErr error
	for range tries {
		port := first + rand.IntN(last-first)
		if given[port] {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			lastErr = err
			continue
		}
		if err := l.Close(); err != nil {
			return "", fmt.Errorf("close the probe of %s: %w", addr, err)
		}
		given[port] = true
		return addr, nil
	}
	return "", errors.Join(fmt.Errorf("no free port between %d and %d in %d tries", first, last, tries), lastErr)
}
