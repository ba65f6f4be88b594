package rig

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// panicLine begins what a process says that ends by a bug, a broken invariant above all, and stands in what a node says
// that goes on after one. What ends a process on purpose, such as a disk that fails, says something else.
var panicLine = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|unexpected fault address )|handler panicked; this is a bug`)

// Panics looks through the logs in a directory, *.log, for processes that ended by a bug. Supervisors start them again,
// so that nobody else might notice.
func Panics(dir string) (found []string, err error) {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, fmt.Errorf("look for logs: %w", err)
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("look for panics: there are no logs in %s", dir)
	}
	for _, name := range logs {
		some, err := panicsIn(name)
		if err != nil {
			return nil, fmt.Errorf("look for panics in %s: %w", name, err)
		}
		found = append(found, some...)
	}
	return found, nil
}

func panicsIn(name string) (found []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewReaderSize(f, 1<<16)
	for n, head := 1, true; ; {
		line, more, err := lines.ReadLine()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if head && panicLine.Match(line) {
			found = append(found, fmt.Sprintf("%s, line %d: %.200s", filepath.Base(name), n, line))
		}
		if head = !more; head { // else the rest of a long line comes next
			n++
		}
	}
}
