package rig

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// Tail reads a log while it grows.
type Tail struct {
	Path   string
	offset int64
}

// Lines calls f with every line that was completed since the last call.
func (t *Tail) Lines(f func(line []byte)) error {
	file, err := os.Open(t.Path)
	if err != nil {
		return fmt.Errorf("read a log: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	if _, err := file.Seek(t.offset, io.SeekStart); err != nil {
		return fmt.Errorf("read a log: %w", err)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("read a log: %w", err)
	}
	whole := bytes.LastIndexByte(data, '\n') + 1 // the rest is still being written
	t.offset += int64(whole)
	for line := range bytes.Lines(data[:whole]) {
		f(line)
	}
	return nil
}
