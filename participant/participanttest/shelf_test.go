package participanttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unisink/unisink/participant"
)

// shelf is a Resource over a directory, as little as can be: one file for each thing that is known. It
// is what processes can be killed over.
type shelf struct {
	dir    string
	broken string
	at     func(step string) error
	opened uint64
}

// shelfOf is the shelf in the world "broken dir".
func shelfOf(_ testing.TB, world string) Target {
	broken, dir, _ := strings.Cut(world, " ")
	make := func(at func(string) error) participant.Resource { return &shelf{dir: dir, broken: broken, at: at} }
	return Target{
		Process: func(testing.TB) participant.Resource { return make(func(string) error { return nil }) },
		Write:   func(_ testing.TB, b participant.Branch, r string) { b.(*book).records = append(b.(*book).records, r) },
		Read: func(t testing.TB) (all []string) {
			names, err := filepath.Glob(filepath.Join(dir, "committed", "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				var records []string
				if err := load(name, &records); err != nil {
					t.Fatal(err)
				}
				all = append(all, records...)
			}
			return all
		},
		World:   world,
		Stepped: func(_ testing.TB, at func(string) error) participant.Resource { return make(at) },
	}
}

func shelfKit(broken string) Kit {
	return Kit{New: func(t testing.TB) Target {
		dir := t.TempDir()
		for _, sub := range []string{"prepared", "committed", "rolledback"} {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		return shelfOf(t, broken+" "+dir)
	}}
}

func load(name string, into any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// store writes a file whole, between two steps.
func (s *shelf) store(step, name string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	tmp := filepath.Join(s.dir, ".tmp-"+filepath.Base(name))
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return s.move(step, tmp, name)
}

func (s *shelf) move(step, from, to string) error {
	if err := s.at("before " + step); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return s.at("after " + step)
}

func (s *shelf) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func (s *shelf) Describe(context.Context) (participant.Description, error) {
	return participant.Description{Kind: "shelf", Identity: filepath.Base(s.dir), Text: s.dir, CanList: true}, nil
}

// fence is the highest generation of a member.
func (s *shelf) fence(ns participant.Namespace, scope, member string) (string, uint64, error) {
	name := s.path("fence-" + strings.ReplaceAll(strings.Join([]string{ns.String(), scope, member}, "."), "/", "."))
	var have uint64
	if err := load(name, &have); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", 0, err
	}
	return name, have, nil
}

func (s *shelf) Open(_ context.Context, o participant.Opening) error {
	name, have, err := s.fence(o.Namespace, o.Scope, o.Member)
	if err != nil {
		return err
	}
	if have > o.Generation {
		return fmt.Errorf("%w: by %d", participant.ErrFenced, have)
	}
	s.opened = o.Generation
	return s.store("fence", name, o.Generation)
}

// book is a branch.
type book struct {
	s        *shelf
	name     participant.BranchName
	records  []string
	prepared bool
}

func (s *shelf) Begin(_ context.Context, name participant.BranchName) (participant.Branch, error) {
	return &book{s: s, name: name}, nil
}

func (b *book) handle() participant.Handle {
	return participant.Handle{Kind: "shelf", Version: 1, Identity: filepath.Base(b.s.dir), Alias: b.name.Resource, Name: b.name.String()}
}

func (b *book) Prepare(ctx context.Context) (participant.Vote, error) {
	if b.prepared {
		return participant.Vote{Kind: participant.Yes, Handle: b.handle()}, nil
	}
	if len(b.records) == 0 {
		return participant.Vote{Kind: participant.ReadOnly}, nil
	}
	if err := ctx.Err(); err != nil {
		return participant.Vote{}, err
	}
	if b.s.opened != b.name.Generation {
		return participant.Vote{Kind: participant.No, Reason: participant.ErrFenced}, nil
	}
	if err := b.s.store("prepare", b.s.path("prepared", b.name.String()), b.records); err != nil {
		return participant.Vote{}, err
	}
	// The fence is looked at last: whoever opens after this finds what is prepared.
	_, have, err := b.s.fence(b.name.Namespace, b.name.Scope(), b.name.Member)
	if err != nil {
		return participant.Vote{}, err
	}
	if have > b.name.Generation {
		err := os.Remove(b.s.path("prepared", b.name.String()))
		return participant.Vote{Kind: participant.No, Reason: errors.Join(participant.ErrFenced, err)}, nil
	}
	b.prepared = true
	return participant.Vote{Kind: participant.Yes, Handle: b.handle()}, nil
}

func (b *book) Discard(context.Context) error {
	if b.prepared {
		return participant.ErrPrepared
	}
	return nil
}

func (s *shelf) mine(h participant.Handle) error {
	if h.Kind != "shelf" || h.Version != 1 || h.Identity != filepath.Base(s.dir) {
		return participant.ErrUnknownHandle
	}
	return nil
}

func (s *shelf) exists(dir, name string) bool {
	_, err := os.Stat(s.path(dir, name))
	return err == nil
}

func (s *shelf) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	if err := errors.Join(s.mine(h), ctx.Err()); err != nil {
		return participant.Proof{}, err
	}
	if s.broken == "copies" && s.exists("prepared", h.Name) { // and dies before it has taken away what it copied
		var records []string
		if err := load(s.path("prepared", h.Name), &records); err != nil {
			return participant.Proof{}, err
		}
		if err := s.store("copy", s.path("committed", fmt.Sprint(h.Name, ".", os.Getpid())), records); err != nil {
			return participant.Proof{}, err
		}
	}
	err := s.move("commit", s.path("prepared", h.Name), s.path("committed", h.Name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return participant.Proof{}, err
	}
	return s.proof(h)
}

func (s *shelf) Rollback(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	if err := errors.Join(s.mine(h), ctx.Err()); err != nil {
		return participant.Proof{}, err
	}
	err := s.move("rollback", s.path("prepared", h.Name), s.path("rolledback", h.Name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return participant.Proof{}, err
	}
	if !s.exists("committed", h.Name) {
		return participant.Proof{Verdict: participant.RolledBack, Evidence: "not there"}, nil
	}
	return s.proof(h)
}

func (s *shelf) proof(h participant.Handle) (participant.Proof, error) {
	switch {
	case s.exists("committed", h.Name):
		return participant.Proof{Verdict: participant.Committed, Evidence: "committed/" + h.Name}, nil
	case s.exists("rolledback", h.Name):
		return participant.Proof{Verdict: participant.RolledBack, Evidence: "rolledback/" + h.Name}, nil
	}
	return participant.Proof{}, fmt.Errorf("no trace of %s", h.Name)
}

func (s *shelf) Inspect(_ context.Context, h participant.Handle) (participant.State, error) {
	if err := s.mine(h); err != nil {
		return 0, err
	}
	for _, at := range []struct {
		dir string
		is  participant.State
	}{{"prepared", participant.Undecided}, {"committed", participant.StateCommitted}, {"rolledback", participant.StateRolledBack}} {
		if s.exists(at.dir, h.Name) {
			return at.is, nil
		}
	}
	return participant.Unknown, nil
}

func (s *shelf) List(_ context.Context, ns participant.Namespace) (all []participant.Listed, err error) {
	entries, err := os.ReadDir(s.path("prepared"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, err := participant.ParseBranchName(e.Name())
		if err == nil && name.Namespace == ns {
			all = append(all, participant.Listed{Handle: (&book{s: s, name: name}).handle(), Name: name})
		}
	}
	return all, nil
}

func (s *shelf) Close() error { return nil }

func TestConformance_Shelf(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts and kills processes")
	}
	cert := Run(t, shelfKit(""))
	if !cert.Certifies("a process killed at any point loses nothing") {
		t.Error("nothing was killed")
	}
}

func TestTheKillTurnsRed(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts and kills processes")
	}
	all := Checks()
	i := slices.IndexFunc(all, func(c Check) bool { return c.Name == "a process killed at any point loses nothing" })
	red, words := judge(t, all[i], shelfKit("copies").New)
	if !red {
		t.Error("stayed green although a commit that was killed writes twice")
	}
	t.Log(words)
}
