package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/participant"
)

// Commit means "make it so": it looks at what is there and does what is missing, in an order in
// which a crash anywhere, or another finisher beside it, does no harm. The manifest comes last.
func (s *Sink) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	id, err := s.ready()
	if err != nil {
		return participant.Proof{}, err
	}
	b, err := s.readHandle(h, id)
	if err != nil {
		return participant.Proof{}, err
	}
	if p, done, err := s.proven(b); err != nil || done {
		return p, err
	}
	for _, f := range b.Files {
		if err := ctx.Err(); err != nil {
			return participant.Proof{}, err
		}
		missing, err := s.publishFile(b.Branch, f)
		if err != nil {
			return participant.Proof{}, fmt.Errorf("publish %s: %w", f.Name, err)
		}
		if missing && !mutant.On("file/absence-is-no-success") {
			// Another finisher may have got as far as removing what is staged, and a reader may
			// have taken the file away since: the manifest is looked for after the files (P16).
			if p, done, err := s.proven(b); err != nil || done {
				return p, err
			}
			// Last: what was not found proves something only if this was the directory to look in.
			if err := s.at.still(id); err != nil {
				return participant.Proof{}, err
			}
			return participant.Proof{Verdict: participant.RolledBack, Evidence: fmt.Sprintf("%s is neither staged nor published, and no manifest names it", f.Name)}, nil
		}
	}
	if err := s.at.syncDir(s.at.dir); err != nil {
		return participant.Proof{}, fmt.Errorf("make the names of %s durable: %w", b.Branch, err)
	}
	fault.Point("file/before-manifest")
	if err := s.writeManifest(b); err != nil {
		return participant.Proof{}, err
	}
	fault.Point("file/after-manifest")
	p, done, err := s.proven(b)
	if err == nil && !done {
		err = fmt.Errorf("the manifest of %s is gone right after it was written", b.Branch)
	}
	return p, err
}

// proven reports a commit that the manifest proves, and clears what is still staged of it. A manifest of other files than
// were prepared proves nothing of these, and they stay where they are.
func (s *Sink) proven(b body) (participant.Proof, bool, error) {
	branch := b.Branch
	text, err := crashfs.ReadFile(s.at.fs, s.at.manifest(branch))
	if errors.Is(err, fs.ErrNotExist) {
		return participant.Proof{}, false, nil
	}
	if err != nil {
		return participant.Proof{}, false, fmt.Errorf("read the manifest of %s: %w", branch, err)
	}
	var m body
	if err := json.Unmarshal(text, &m); err != nil {
		return participant.Proof{}, false, fmt.Errorf("the manifest of %s can't be read, put it back or accept the loss: %w: %w", branch, participant.ErrUndeterminable, err)
	}
	if why := b.other(m); why != "" && !mutant.On("file/manifest-of-these") {
		return participant.Proof{}, false, s.foreign(branch, why)
	}
	// Its writer may have died before its name was durable.
	if err := s.at.syncDir(s.at.manifests()); err != nil {
		return participant.Proof{}, false, fmt.Errorf("make the manifest of %s durable: %w", branch, err)
	}
	fault.Point("file/before-unstage")
	if err := s.at.removeStaged(branch); err != nil {
		return participant.Proof{}, false, err
	}
	s.forget(branch)
	return participant.Proof{Verdict: participant.Committed, Evidence: "manifest " + filepath.Base(s.at.manifest(branch))}, true, nil
}

// other says in what the manifest of a branch is of other files than were prepared. What was found staged has no lengths and
// no digests.
func (b body) other(m body) string {
	for _, f := range b.Files {
		i := slices.IndexFunc(m.Files, func(o published) bool { return o.Name == f.Name })
		switch {
		case i < 0:
			return fmt.Sprintf("%s was prepared, and the manifest does not name it", f.Name)
		case f.SHA256 != "" && (m.Files[i].SHA256 != f.SHA256 || m.Files[i].Bytes != f.Bytes):
			return fmt.Sprintf("%s was prepared with other content than the manifest names", f.Name)
		}
	}
	return ""
}

// foreign is the error where the manifest of a branch is of other files. While its own are still staged they can be
// published once the others are out of the way.
func (s *Sink) foreign(branch, why string) error {
	_, err := s.at.fs.Stat(s.at.staged(branch))
	switch {
	case err == nil:
		return fmt.Errorf("%s: what another coordinator group of the same namespace has published as %s stands in the way, move it and its manifest out of %s: %w",
			why, branch, s.at.dir, participant.ErrMisconfigured)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s, and nothing is staged of %s: %w", why, branch, participant.ErrUndeterminable)
	default:
		return err
	}
}

// used is the error where a branch was published before under the same name.
func (s *Sink) used(branch string) error {
	return fmt.Errorf("%s has a manifest already: another coordinator group of the same namespace has written into %s. Take another directory, "+
		"or give the group a namespace of its own: %w", branch, s.at.dir, participant.ErrMisconfigured)
}

// publishFile gives one staged file its final name, and makes its content durable once more: who
// writes the manifest has synced what it names, whoever linked it (P21).
func (s *Sink) publishFile(branch string, f published) (missing bool, err error) {
	final := filepath.Join(s.at.dir, f.Name)
	staged := filepath.Join(s.at.staged(branch), f.Name)
	_, isFinal, err := s.at.exists(final)
	if err != nil {
		return false, err
	}
	if !isFinal {
		if _, found, err := s.at.exists(staged); err != nil || !found {
			if err != nil {
				return false, err
			}
			// Between the two looks another finisher may have linked it and removed the staged name.
			if _, isFinal, err = s.at.exists(final); err != nil || !isFinal {
				return err == nil, err
			}
		}
	}
	own := s.wrote(branch)
	linked := false
	if !isFinal {
		if err := s.check(staged, f, own); err != nil {
			return false, err
		}
		fault.Point("file/before-link")
		err := s.at.fs.Link(staged, final)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			if errors.Is(err, fs.ErrNotExist) {
				return false, fmt.Errorf("another finisher was quicker; look again: %w", participant.ErrRetry)
			}
			return false, err
		}
		linked = err == nil
		fault.Point("file/after-link")
	}
	if err := s.check(final, f, own && linked); err != nil {
		return false, s.inTheWay(err, staged, f, branch)
	}
	return false, s.sync(final)
}

// inTheWay is the error where a final name has not what was prepared. While that is still staged another file stands in
// its way, and can be taken out of it; else it is gone.
func (s *Sink) inTheWay(err error, staged string, f published, branch string) error {
	if !errors.Is(err, participant.ErrUndeterminable) {
		return err
	}
	if _, found, looked := s.at.exists(staged); looked != nil || !found {
		return errors.Join(err, looked)
	}
	if whole := s.check(staged, f, s.wrote(branch)); whole != nil {
		return err
	}
	return fmt.Errorf("another file stands where %s is to be published, move it away: %w", f.Name, participant.ErrMisconfigured)
}

// check compares length and, unless it is known that this process wrote the file itself, digest.
func (s *Sink) check(name string, f published, own bool) error {
	size, found, err := s.at.exists(name)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s is gone: %w", name, participant.ErrRetry)
	}
	if size != f.Bytes {
		return fmt.Errorf("%s has %d bytes, %d were prepared; it was changed by somebody else, put it back or accept the loss: %w", name, size, f.Bytes, participant.ErrUndeterminable)
	}
	if own {
		return nil
	}
	digest, err := s.digest(name)
	if err != nil {
		return err
	}
	if digest != f.SHA256 && !mutant.On("file/digest") {
		return fmt.Errorf("%s has another content than was prepared (digest %.12s…, prepared %.12s…); it was changed by somebody else, put it back or accept the loss: %w",
			name, digest, f.SHA256, participant.ErrUndeterminable)
	}
	return nil
}

func (s *Sink) digest(name string) (_ string, err error) {
	r, err := s.at.fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (s *Sink) sync(name string) (err error) {
	f, err := s.at.fs.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Sync()
}

func (s *Sink) writeManifest(b body) error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("write the manifest of %s: %w", b.Branch, err)
	}
	if err := s.at.publish(s.at.manifest(b.Branch), append(text, '\n')); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("publish the manifest of %s: %w", b.Branch, err)
	}
	return nil
}

// Rollback removes what is staged. A branch that its manifest proves committed is left as it is,
// and the proof says so; one whose publishing has begun is nobody's to roll back.
func (s *Sink) Rollback(_ context.Context, h participant.Handle) (participant.Proof, error) {
	id, err := s.ready()
	if err != nil {
		return participant.Proof{}, err
	}
	b, err := s.readHandle(h, id)
	if err != nil {
		return participant.Proof{}, err
	}
	if p, done, err := s.proven(b); err != nil || done {
		return p, err
	}
	for _, f := range b.Files {
		if _, found, err := s.at.exists(filepath.Join(s.at.dir, f.Name)); err != nil || found {
			if err == nil {
				err = fmt.Errorf("%s is published already, so a commit of %s has begun; it can only be completed: %w", f.Name, b.Branch, participant.ErrBug)
			}
			return participant.Proof{}, err
		}
	}
	fault.Point("file/before-rollback")
	if err := s.at.removeStaged(h.Name); err != nil {
		return participant.Proof{}, err
	}
	if err := s.at.still(id); err != nil {
		return participant.Proof{}, err
	}
	s.forget(h.Name)
	return participant.Proof{Verdict: participant.RolledBack, Evidence: "nothing of it is staged or published"}, nil
}

// begun reports whether something of a branch is staged or published: without a manifest, it is
// undecided or its commit is under way.
func (s *Sink) begun(b body) (bool, error) {
	if _, err := s.at.fs.Stat(s.at.staged(b.Branch)); err == nil {
		return true, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, f := range b.Files {
		if _, found, err := s.at.exists(filepath.Join(s.at.dir, f.Name)); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// Inspect looks at what is staged first and at the manifest second (P16).
func (s *Sink) Inspect(_ context.Context, h participant.Handle) (participant.State, error) {
	id, err := s.ready()
	if err != nil {
		return 0, err
	}
	b, err := s.readHandle(h, id)
	if err != nil {
		return 0, err
	}
	undecided, err := s.begun(b)
	if err != nil {
		return 0, err
	}
	_, committed, err := s.at.exists(s.at.manifest(h.Name))
	if mutant.On("file/marker-after-list") {
		undecided, _ = s.begun(b)
	}
	switch {
	case err != nil:
		return 0, err
	case committed:
		return participant.StateCommitted, nil
	case undecided:
		return participant.Undecided, nil
	default:
		return participant.Unknown, nil
	}
}
