package services

import (
	"context"
	"io"
)

// FetchKafka fetches the newest Kafka.
func FetchKafka(ctx context.Context) error {
	_, err := fetchKafka(ctx, KafkaCurrent)
	return err
}

// Untar unpacks an archive below a directory.
func Untar(r io.Reader, dir string) error { return untar(r, dir) }

// Dir returns where the server keeps its data.
func (s *PostgresServer) Dir() string { return s.dir }

// Children returns the processes that a process started.
func Children(pid int) ([]int, error) { return children(pid) }

// Numbers reads process ids that stand apart.
func Numbers(text string) ([]int, error) { return numbers(text) }

// Reachable makes a directory for PostgreSQL and returns it.
func Reachable() (string, error) {
	u, err := unprivileged()
	if err != nil {
		return "", err
	}
	dir, _, err := reachable(u)
	return dir, err
}

// OnFreePorts is what starts are tried with.
var OnFreePorts = onFreePorts

// Failed adds the end of a log to an error.
var Failed = failed

// TempDir makes a temporary directory.
func TempDir(prefix string) (string, func() error, error) { return tempDir(prefix) }
