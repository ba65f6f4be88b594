package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// Sink is a directory that branches are published into. It is safe for concurrent use.
type Sink struct {
	c  SinkConfig
	at layout

	mu         sync.Mutex // guards what follows; held for memory only
	id         string
	holder     string
	generation uint64
	open       map[*Branch]struct{} // begun in this generation
	mine       map[string]bool      // branches whose content this process wrote
	closed     bool
}

// NewSink makes a sink. Nothing is touched before Describe or Open.
func NewSink(c SinkConfig) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return &Sink{
		c: c, at: layout{fs: c.FS, dir: c.Dir}, open: map[*Branch]struct{}{}, mine: map[string]bool{},
	}, nil
}

// Describe makes the directory and its identity where they are missing.
func (s *Sink) Describe(context.Context) (participant.Description, error) {
	id, err := s.ready()
	if err != nil {
		return participant.Description{}, err
	}
	return participant.Description{Kind: Kind, Identity: id, Text: "directory " + s.at.dir, CanList: true}, nil
}

// ready returns the directory's identity, which it remembers: a directory that is away or replaced
// while the sink lives is neither looked up nor written to, and proves nothing.
func (s *Sink) ready() (string, error) {
	if id := s.identity(); id != "" {
		return id, s.at.still(id)
	}
	id, err := s.at.prepare()
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.id = id
	s.mu.Unlock()
	return id, nil
}

func (s *Sink) identity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Open raises the holder's fence. Branches of an older generation of this object that were not
// prepared are dropped; those that were stay for their handles.
func (s *Sink) Open(ctx context.Context, o participant.Opening) error {
	if _, err := s.ready(); err != nil {
		return err
	}
	if o.Generation == 0 {
		return fmt.Errorf("open %s for generation 0: %w", s.at.dir, participant.ErrBug)
	}
	if err := s.at.furnish(); err != nil { // a stranger may have removed parts of it
		return err
	}
	if err := s.at.raise(holder(o), o.Generation); err != nil {
		return err
	}
	s.mu.Lock()
	old := s.open
	s.open = map[*Branch]struct{}{}
	s.holder, s.generation, s.closed = holder(o), o.Generation, false
	s.mu.Unlock()
	for b := range old {
		if err := b.Discard(ctx); err != nil && !errors.Is(err, participant.ErrPrepared) {
			return err
		}
	}
	return s.tidyScratch()
}

// tidyScratch removes half-written scratch files of processes that died. One that a living process
// is writing makes that process try again.
func (s *Sink) tidyScratch() error {
	entries, err := s.at.fs.ReadDir(s.at.scratch())
	if err != nil {
		return fmt.Errorf("list scratch files: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !old(info) {
			continue // gone, or too young to be abandoned
		}
		if err := s.at.fs.Remove(filepath.Join(s.at.scratch(), e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an abandoned scratch file: %w", err)
		}
	}
	return nil
}

// Begin starts a branch; nothing is written before its first record.
func (s *Sink) Begin(_ context.Context, name participant.BranchName) (participant.Branch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.id == "" {
		return nil, fmt.Errorf("begin %s: the sink is not open: %w", name, participant.ErrBug)
	}
	if name.Txn == "" && name.Generation != s.generation {
		return nil, fmt.Errorf("begin %s: generation %d is open here: %w", name, s.generation, participant.ErrFenced)
	}
	b := &Branch{s: s, name: name, branch: name.String()}
	s.open[b] = struct{}{}
	s.mine[b.branch] = true
	return b, nil
}

// stillMine reports ErrFenced when a newer generation was opened, here or by another process.
func (s *Sink) stillMine(generation uint64) error {
	s.mu.Lock()
	holder, now := s.holder, s.generation
	s.mu.Unlock()
	if generation == 0 { // run by hand
		return nil
	}
	g, err := s.at.fenced(holder)
	if err != nil {
		return err
	}
	if (g > generation || now > generation) && !mutant.On("file/fence") {
		return fmt.Errorf("generation %d of %s is open, this branch is of %d: %w", max(g, now), holder, generation, participant.ErrFenced)
	}
	return nil
}

// wrote reports whether this process wrote the branch's files, and need not read them again.
func (s *Sink) wrote(branch string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mine[branch]
}

// forget lets go of a branch that is finished.
func (s *Sink) forget(branch string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mine, branch)
	for b := range s.open {
		if b.branch == branch {
			delete(s.open, b)
		}
	}
}

// List names every branch that has something staged under a namespace.
func (s *Sink) List(_ context.Context, ns participant.Namespace) ([]participant.Listed, error) {
	id, err := s.ready()
	if err != nil {
		return nil, err
	}
	entries, err := s.at.fs.ReadDir(s.at.stagedRoot())
	if err != nil {
		return nil, fmt.Errorf("list what is staged in %s: %w", s.at.dir, err)
	}
	var out []participant.Listed
	for _, e := range entries {
		name, err := participant.ParseBranchName(e.Name())
		if err != nil || name.Namespace != ns || !e.IsDir() {
			continue // somebody else's
		}
		l := participant.Listed{Name: name}
		if info, err := e.Info(); err == nil {
			l.Since = info.ModTime()
		}
		files, err := s.stagedFiles(e.Name())
		if err != nil {
			return nil, err
		}
		if l.Handle, err = newHandle(id, name, files); err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// stagedFiles names the files without lengths and digests: good enough for a rollback.
func (s *Sink) stagedFiles(branch string) ([]published, error) {
	entries, err := s.at.fs.ReadDir(s.at.staged(branch))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list what is staged of %s: %w", branch, err)
	}
	var out []published
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), branch+"-") {
			out = append(out, published{Name: e.Name()})
		}
	}
	return out, nil
}

// Close drops what was not prepared and publishes nothing.
func (s *Sink) Close() error {
	s.mu.Lock()
	old := s.open
	s.open = map[*Branch]struct{}{}
	s.closed = true
	s.mu.Unlock()
	var errs []error
	for b := range old {
		if err := b.Discard(context.Background()); err != nil && !errors.Is(err, participant.ErrPrepared) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
