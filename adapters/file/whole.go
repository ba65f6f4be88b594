package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/unisink/unisink/participant"
)

// A file must be whole when it appears under its name. Nobody says so to a source, so it looks: a file
// that grows behind its end would be passed over while the process lives, and read by its successor; and one
// whose last line was half written would give two broken records.

// looksPerPoll is how many files are looked at again each time that new ones are looked for.
const looksPerPoll = 64

// lookBack looks at n of the files that were read to their ends, in turn.
func (s *Source) lookBack(n int) error {
	for range min(n, len(s.order)) {
		name := s.order[s.looked%len(s.order)]
		s.looked++
		if !s.ended[name] {
			continue
		}
		info, err := s.c.FS.Stat(filepath.Join(s.c.Dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // who has read it may tidy it away
		}
		if err != nil {
			return fmt.Errorf("look at %s: %w", name, err)
		}
		if info.Size() != s.next[name] {
			return fmt.Errorf("%s had %d bytes when it was read to its end, and has %d now: a file must be whole when it appears in %s; "+
				"write it under a name that does not end in %s, and rename it: %w", name, s.next[name], info.Size(), s.c.Dir, extension, participant.ErrMisconfigured)
		}
	}
	return nil
}

// between refuses a position in the middle of a line: the line had no end yet when it was read as a record.
func (s *Source) between(name string, at int64) (err error) {
	if at == 0 {
		return nil
	}
	f, err := s.c.FS.OpenFile(filepath.Join(s.c.Dir, name), os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var last [1]byte
	if _, err = f.Seek(at-1, io.SeekStart); err == nil {
		_, err = io.ReadFull(f, last[:])
	}
	if err != nil {
		return fmt.Errorf("read %s at byte %d: %w", name, at-1, err)
	}
	if last[0] != '\n' {
		return fmt.Errorf("%s was read up to byte %d, where its last line had no end yet, and has grown: what was half a line then was taken for a record; "+
			"cut the file there again, write what is new into another one, and mend that record: %w", name, at, participant.ErrMisconfigured)
	}
	return nil
}
