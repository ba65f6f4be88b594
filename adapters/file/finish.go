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
	if p, done, err := s.proven(h.Name); err != nil || done {
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
			if p, done, err := s.proven(h.Name); err != nil || done {
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
	p, done, err := s.proven(h.Name)
	if err == nil && !done {
		err = fmt.Errorf("the manifest of %s is gone right after it was written", b.Branch)
	}
	return p, err
}

// proven reports a commit that the manifest proves, and clears what is still staged of it.
func (s *Sink) proven(branch string) (participant.Proof, bool, error) {
	_, found, err := s.at.exists(s.at.manifest(branch))
	if err != nil || !found {
		return participant.Proof{}, false, err
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
	if !isFinal {
		if err := s.check(staged, f, branch); err != nil {
			return false, err
		}
		fault.Point("file/before-link")
		if err := s.at.fs.Link(staged, final); err != nil && !errors.Is(err, fs.ErrExist) {
			if errors.Is(err, fs.ErrNotExist) {
				return false, fmt.Errorf("another finisher was quicker; look again: %w", participant.ErrRetry)
			}
			return false, err
		}
		fault.Point("file/after-link")
	}
	if err := s.check(final, f, branch); err != nil {
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
	if whole := s.check(staged, f, branch); whole != nil {
		return err
	}
	return fmt.Errorf("another file stands where %s is to be published, move it away: %w", f.Name, participant.ErrMisconfigured)
}

// check compares length and, unless this process wrote the file itself, digest.
func (s *Sink) check(name string, f published, branch string) error {
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
	if s.wrote(branch) {
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
	if p, done, err := s.proven(h.Name); err != nil || done {
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
