package file

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// SourceConfig of a source. Zero values take the defaults.
type SourceConfig struct {
	// Name is the source's name in its pipeline, which its splits carry; default "files".
	Name string
	// Dir is read: files that end in .jsonl, in order of their names, one record a line. Where a
	// file sink wrote it, only what its manifests name is read, so whole epochs or nothing.
	Dir string
	// Follow waits for more files; without it the source ends after those that were there at Open.
	Follow bool
	// Lines says what of a record a line holds; default LineValue.
	Lines Lines
	// BatchRecords is the most that one Poll returns; default 1024.
	BatchRecords int
	// MaxRecordBytes is the longest line; default 1 MiB.
	MaxRecordBytes int
	// PollEvery is how often new files are looked for; default 200 ms.
	PollEvery time.Duration
	// FS replaces the disk in tests.
	FS crashfs.FS
}

// Source reads a directory of JSON lines. One goroutine uses it at a time. A file is a split; a
// position is the number of bytes read of it. A file must be whole when it appears, and not change after:
// one that is seen to is an error, and is never read half.
type Source struct {
	c     SourceConfig
	at    layout
	order []string         // names of the files known, in order
	next  map[string]int64 // bytes read, per file
	ended map[string]bool  // files whose end was told
	// behind: the source had ended before, and goes on.
	behind bool
	// looked counts the looks back at files that were read.
	looked int
	cur    *reading
	batch  stream.Batch
}

type reading struct {
	name string
	f    crashfs.File
	r    *bufio.Reader
	at   int64
	size int64
}

// NewSource makes a source; nothing is read before Open.
func NewSource(c SourceConfig) (*Source, error) {
	if c.Dir == "" {
		return nil, fmt.Errorf("file source: %w: the directory is not set", participant.ErrMisconfigured)
	}
	if err := c.Lines.check(); err != nil {
		return nil, fmt.Errorf("file source: %w: %w", participant.ErrMisconfigured, err)
	}
	if c.Name == "" {
		c.Name = "files"
	}
	if c.BatchRecords <= 0 {
		c.BatchRecords = 1024
	}
	if c.MaxRecordBytes <= 0 {
		c.MaxRecordBytes = 1 << 20
	}
	if c.PollEvery <= 0 {
		c.PollEvery = 200 * time.Millisecond
	}
	if c.FS == nil {
		c.FS = crashfs.OS()
	}
	c.Dir = filepath.Clean(c.Dir)
	return &Source{c: c, at: layout{fs: c.FS, dir: c.Dir}}, nil
}

// Describe names the directory by its identity where a file sink gave it one; a directory without
// one has no identity that outlasts a mount or a move.
func (s *Source) Describe(context.Context) (participant.Description, error) {
	info, err := s.c.FS.Stat(s.c.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return participant.Description{}, fmt.Errorf("the source directory %s does not exist: %w", s.c.Dir, participant.ErrMisconfigured)
	case err != nil:
		return participant.Description{}, fmt.Errorf("look at the source directory: %w", err)
	case !info.IsDir():
		return participant.Description{}, fmt.Errorf("the source %s is a file, not a directory: %w", s.c.Dir, participant.ErrMisconfigured)
	}
	identity := ""
	if text, err := crashfs.ReadFile(s.c.FS, s.at.id()); err == nil {
		identity = strings.TrimSpace(string(text))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return participant.Description{}, fmt.Errorf("read the identity of %s: %w", s.c.Dir, err)
	}
	return participant.Description{Kind: Kind, Identity: identity, Text: "directory " + s.c.Dir, CanList: true}, nil
}

// Open starts at the positions given; files without one are read from their beginning. A file
// that is gone, or shorter than it was read, is an error and never a reset.
func (s *Source) Open(_ context.Context, from []stream.Position) error {
	if err := s.Close(); err != nil {
		return err
	}
	s.order, s.next, s.ended, s.looked = nil, map[string]int64{}, map[string]bool{}, 0
	if err := s.discover(); err != nil {
		return err
	}
	s.behind = goesOn(from)
	known := map[string]bool{}
	for _, n := range s.order {
		known[n] = true
	}
	for _, p := range from {
		name := p.Split.ID
		if !known[name] {
			return fmt.Errorf("%s was read up to byte %d and is gone from %s; put it back: %w", name, p.Offset, s.c.Dir, participant.ErrMisconfigured)
		}
		info, err := s.c.FS.Stat(filepath.Join(s.c.Dir, name))
		if err != nil {
			return fmt.Errorf("look at %s: %w", name, err)
		}
		if info.Size() < p.Offset {
			return fmt.Errorf("%s was read up to byte %d and has %d now; it was cut or replaced: %w", name, p.Offset, info.Size(), participant.ErrMisconfigured)
		}
		if info.Size() > p.Offset {
			if err := s.between(name, p.Offset); err != nil {
				return err
			}
		}
		s.next[name] = p.Offset
	}
	return nil
}

// discover adds files that are new.
func (s *Source) discover() error {
	names, err := s.files()
	if err != nil {
		return err
	}
	for _, n := range names {
		if _, known := s.next[n]; !known {
			s.order = append(s.order, n)
			s.next[n] = 0
		}
	}
	return nil
}

// files lists what may be read: everything, or what manifests name where there are any.
func (s *Source) files() ([]string, error) {
	entries, err := s.c.FS.ReadDir(s.c.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the source directory %s: %w", s.c.Dir, err)
	}
	byManifest := false
	var names []string
	for _, e := range entries {
		byManifest = byManifest || e.IsDir() && e.Name() == filepath.Base(s.at.manifests())
		if !e.IsDir() && strings.HasSuffix(e.Name(), extension) && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	if !byManifest {
		return names, nil
	}
	manifests, err := ReadManifests(s.c.FS, s.c.Dir)
	if err != nil {
		return nil, err
	}
	names = nil
	for _, m := range manifests {
		for _, f := range m.Files {
			names = append(names, f.Name)
		}
	}
	return names, nil
}

// Splits lists the files known.
func (s *Source) Splits() []stream.Split {
	out := make([]stream.Split, len(s.order))
	for i, n := range s.order {
		out[i] = s.split(n)
	}
	return out
}

func (s *Source) split(name string) stream.Split { return stream.Split{Resource: s.c.Name, ID: name} }

// Poll returns lines of one file. At a file's end its batch says Ended; after the last file of a
// source that does not follow comes io.EOF.
func (s *Source) Poll(ctx context.Context) (*stream.Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.cur == nil {
		found, err := s.openNext(ctx)
		if err != nil || !found {
			return nil, err
		}
	}
	b, err := s.read()
	if err != nil {
		return nil, fmt.Errorf("read %s at byte %d: %w", s.cur.name, s.cur.at, err)
	}
	if b.Ended {
		s.ended[s.cur.name] = true
		err = s.cur.f.Close()
		s.cur = nil
	}
	return b, err
}

// openNext opens the next file with something left. False without an error: nothing for now.
func (s *Source) openNext(ctx context.Context) (bool, error) {
	for _, name := range s.order {
		if s.ended[name] {
			continue
		}
		f, err := s.c.FS.OpenFile(filepath.Join(s.c.Dir, name), os.O_RDONLY, 0)
		if err != nil {
			return false, fmt.Errorf("open %s: %w", name, err)
		}
		info, err := f.Stat()
		if err == nil {
			_, err = f.Seek(s.next[name], io.SeekStart)
		}
		if err != nil {
			return false, errors.Join(fmt.Errorf("open %s: %w", name, err), f.Close())
		}
		s.cur = &reading{name: name, f: f, r: bufio.NewReaderSize(f, bufferBytes), at: s.next[name], size: info.Size()}
		return true, nil
	}
	if !s.c.Follow {
		if err := s.lookBack(len(s.order)); err != nil {
			return false, err
		}
		return false, io.EOF
	}
	t := time.NewTimer(s.c.PollEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-t.C:
		return false, errors.Join(s.discover(), s.lookBack(looksPerPoll))
	}
}

// read fills the batch, which is valid until the next one.
func (s *Source) read() (*stream.Batch, error) {
	c := s.cur
	b := &s.batch
	*b = stream.Batch{Split: s.split(c.name), Records: b.Records[:0], HighWater: c.size}
	for len(b.Records) < s.c.BatchRecords {
		start := c.at
		line, err := s.line()
		if errors.Is(err, io.EOF) {
			b.Ended = true
			break
		}
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue // blank
		}
		r := stream.Record{Value: line}
		if s.c.Lines == LineRecord {
			if r, err = ParseRecord(line); err != nil {
				return nil, fmt.Errorf("the line at byte %d: %w", start, err)
			}
		}
		r.Topic, r.Offset = c.name, start
		b.Records = append(b.Records, r)
	}
	s.next[c.name] = c.at
	b.Next = stream.Position{Split: b.Split, Offset: c.at, LeaderEpoch: -1, Opaque: s.mark(b.Ended)}
	return b, nil
}

// line reads one line without its end. The last line needs none.
func (s *Source) line() ([]byte, error) {
	c := s.cur
	var line []byte
	for {
		part, err := c.r.ReadSlice('\n')
		c.at += int64(len(part))
		line = append(line, part...)
		if len(line) > s.c.MaxRecordBytes {
			return nil, fmt.Errorf("a line is longer than %d bytes: %w", s.c.MaxRecordBytes, participant.ErrMisconfigured)
		}
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte{'\n'}), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// Close ends reading.
func (s *Source) Close() error {
	if s.cur == nil {
		return nil
	}
	err := s.cur.f.Close()
	s.cur = nil
	return err
}

// Manifest is what one epoch published.
type Manifest struct {
	Name  participant.BranchName
	Files []ManifestFile
}

// ManifestFile is one published file.
type ManifestFile struct {
	Name    string
	Bytes   int64
	SHA256  string
	Records int64
}

// ReadManifests returns what was published in a directory, in order of branch names by scope and
// epoch: what a reader may take as whole epochs. A nil f is the machine's disk.
func ReadManifests(f crashfs.FS, dir string) ([]Manifest, error) {
	if f == nil {
		f = crashfs.OS()
	}
	at := layout{fs: f, dir: filepath.Clean(dir)}
	entries, err := f.ReadDir(at.manifests())
	if err != nil {
		return nil, fmt.Errorf("list the manifests of %s: %w", dir, err)
	}
	var out []Manifest
	for _, e := range entries {
		branch, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		name, err := participant.ParseBranchName(branch)
		if err != nil {
			continue // not a manifest of ours
		}
		text, err := crashfs.ReadFile(f, at.manifest(branch))
		if err != nil {
			return nil, fmt.Errorf("read the manifest of %s: %w", branch, err)
		}
		var b body
		if err := json.Unmarshal(text, &b); err != nil {
			return nil, fmt.Errorf("the manifest %s is damaged: %w", at.manifest(branch), err)
		}
		if b.Branch != branch {
			return nil, fmt.Errorf("the manifest %s is that of %q", at.manifest(branch), b.Branch)
		}
		m := Manifest{Name: name}
		for _, p := range b.Files {
			if err := checkName(branch, p.Name); err != nil {
				return nil, err
			}
			m.Files = append(m.Files, ManifestFile(p))
		}
		out = append(out, m)
	}
	sortManifests(out)
	return out, nil
}
