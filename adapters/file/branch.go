package file

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/internal/fault"
	"github.com/unisink/unisink/internal/mutant"
	"github.com/unisink/unisink/internal/veil"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// Branch is the file sink's share of one epoch. One goroutine uses it at a time.
type Branch struct {
	s      *Sink
	name   participant.BranchName
	branch string

	files []published
	now   *writing // the file that is being written
	made  bool     // this object made the staged directory; else what is there is not its to drop
	line  []byte   // reused

	mu     sync.Mutex // guards failed, vote and ended against a Close or Open beside it; memory only
	failed error      // the first error of a write: the vote is No
	vote   *participant.Vote
	ended  bool
}

// writing is one staged file that is still open.
type writing struct {
	name    string
	f       crashfs.File
	buf     *bufio.Writer
	sum     hash.Hash
	bytes   int64
	records int64
}

// Write appends each record as one line, in the form of SinkConfig.Lines. The first error is kept and
// makes Prepare answer No.
func (b *Branch) Write(ctx context.Context, records []stream.Record) error {
	if err := b.usable(); err != nil {
		return err
	}
	for i := range records {
		if err := b.writeOne(&records[i]); err != nil {
			err = fmt.Errorf("write %s for %s: %w", place(i, &records[i]), b.branch, err)
			b.fail(err)
			return err
		}
	}
	return ctx.Err()
}

// place says which record it was: by where it stood in its source, or, for results, by what tells its key from others.
func place(i int, r *stream.Record) string {
	if from, ok := r.Came(); ok {
		return "the record from " + from.String()
	}
	return fmt.Sprintf("result %d of this call, with %s", i, veil.Key(r.Key))
}

var null = []byte("null")

func (b *Branch) writeOne(r *stream.Record) error {
	value := r.Value
	switch {
	case b.s.c.Lines == LineRecord:
		b.line = appendRecord(b.line[:0], r)
		value = b.line
	case value == nil:
		value = null
	}
	if at := bytes.IndexByte(value, '\n'); at >= 0 {
		return fmt.Errorf("the value has a line break at byte %d, and a line is a record here; write whole records instead of values: %w", at, participant.ErrMisconfigured)
	}
	if b.now == nil {
		if err := b.openNext(); err != nil {
			return err
		}
	}
	w := b.now
	for _, part := range [2][]byte{value, {'\n'}} {
		if _, err := w.buf.Write(part); err != nil {
			return err
		}
		_, _ = w.sum.Write(part) // a hash never fails
		w.bytes += int64(len(part))
	}
	w.records++
	if w.bytes >= b.s.c.MaxFileBytes {
		return b.closeNow()
	}
	return nil
}

// openNext begins a staged file. The staged directory is made once, with the first file: after a
// rollback has removed it, a late writer finds no way back in.
func (b *Branch) openNext() error {
	dir := b.s.at.staged(b.branch)
	if len(b.files) == 0 {
		if _, found, err := b.s.at.exists(b.s.at.manifest(b.branch)); err != nil || found && !mutant.On("file/name-used-once") {
			if err == nil {
				err = b.s.used(b.branch)
			}
			return err
		}
		fault.Point("file/before-stage")
		if err := b.s.at.fs.Mkdir(dir, 0o755); err != nil {
			if errors.Is(err, fs.ErrExist) {
				err = fmt.Errorf("something is staged already, by an earlier attempt or another process: %w: %w", err, participant.ErrBug)
			}
			return err
		}
		b.made = true
		if err := b.s.at.syncDir(b.s.at.stagedRoot()); err != nil {
			return err
		}
		fault.Point("file/after-stage")
	}
	name := fileName(b.branch, len(b.files)+1)
	f, err := b.s.at.fs.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	b.now = &writing{name: name, f: f, buf: bufio.NewWriterSize(f, bufferBytes), sum: sha256.New()}
	return nil
}

// closeNow makes the content of the current file durable.
func (b *Branch) closeNow() error {
	w := b.now
	b.now = nil
	err := w.buf.Flush()
	if err == nil {
		fault.Point("file/before-fsync")
		if !mutant.On("file/sync-before-vote") {
			err = w.f.Sync()
		}
	}
	if err = errors.Join(err, w.f.Close()); err != nil {
		return err
	}
	b.files = append(b.files, published{Name: w.name, Bytes: w.bytes, SHA256: hex.EncodeToString(w.sum.Sum(nil)), Records: w.records})
	return nil
}

// Prepare makes every staged file and its name durable. After Yes only the handle ends the branch.
func (b *Branch) Prepare(ctx context.Context) (participant.Vote, error) {
	b.mu.Lock()
	if b.vote != nil {
		v := *b.vote
		b.mu.Unlock()
		return v, nil
	}
	failed := b.failed
	b.mu.Unlock()
	if failed != nil {
		return b.no(failed), nil
	}
	if err := b.usable(); err != nil {
		return participant.Vote{}, err
	}
	if b.now == nil && len(b.files) == 0 {
		return b.answer(participant.Vote{Kind: participant.ReadOnly}), nil
	}
	if err := ctx.Err(); err != nil {
		return participant.Vote{}, err
	}
	h, err := b.persist()
	if err != nil {
		return b.no(err), nil
	}
	return b.answer(participant.Vote{Kind: participant.Yes, Handle: h}), nil
}

func (b *Branch) persist() (participant.Handle, error) {
	if b.now != nil {
		if err := b.closeNow(); err != nil {
			return participant.Handle{}, fmt.Errorf("make %s durable: %w", b.branch, err)
		}
	}
	if err := b.s.at.syncDir(b.s.at.staged(b.branch)); err != nil {
		return participant.Handle{}, fmt.Errorf("make the names of %s durable: %w", b.branch, err)
	}
	fault.Point("file/after-fsync")
	// Last, so that a generation that was fenced meanwhile says so instead of voting in vain.
	if err := b.s.stillMine(b.name.Generation); err != nil {
		return participant.Handle{}, err
	}
	h, err := newHandle(b.s.identity(), b.name, b.files)
	if err != nil {
		return participant.Handle{}, err
	}
	if len(h.Body) > participant.MaxHandle-1024 {
		return participant.Handle{}, fmt.Errorf("%s has %d files, too many to name in one handle; raise the largest file size: %w", b.branch, len(b.files), participant.ErrMisconfigured)
	}
	return h, nil
}

// no drops what was staged: a branch that cannot be prepared holds nothing. What cannot be removed
// now is listed, and rolled back when the generation is closed.
func (b *Branch) no(reason error) participant.Vote {
	if err := b.drop(); err != nil {
		reason = fmt.Errorf("%w (and its staged files are still there: %w)", reason, err)
	}
	return b.answer(participant.Vote{Kind: participant.No, Reason: reason})
}

func (b *Branch) answer(v participant.Vote) participant.Vote {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.vote = &v
	return v
}

// Discard drops a branch that was not prepared.
func (b *Branch) Discard(context.Context) error {
	b.mu.Lock()
	prepared := b.vote != nil && b.vote.Kind == participant.Yes
	b.ended = b.ended || !prepared
	b.mu.Unlock()
	if prepared {
		return fmt.Errorf("discard %s: %w", b.branch, participant.ErrPrepared)
	}
	return b.drop()
}

func (b *Branch) drop() error {
	var err error
	if b.now != nil {
		err = b.now.f.Close()
		b.now = nil
	}
	if !b.made {
		return err // an earlier attempt by the same name may be prepared, and decided
	}
	return errors.Join(err, b.s.at.removeStaged(b.branch))
}

func (b *Branch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		b.failed = err
	}
}

func (b *Branch) usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended:
		return fmt.Errorf("branch %s has ended: %w", b.branch, participant.ErrFenced)
	case b.vote != nil:
		return fmt.Errorf("write to %s after its vote: %w", b.branch, participant.ErrBug)
	}
	return nil
}

// removeStaged removes what is staged of a branch; nothing there is fine.
func (l layout) removeStaged(branch string) error {
	dir := l.staged(branch)
	if _, err := l.fs.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := crashfs.RemoveAll(l.fs, dir); err != nil {
		return fmt.Errorf("remove what is staged of %s: %w", branch, err)
	}
	if err := l.syncDir(l.stagedRoot()); err != nil {
		return fmt.Errorf("make the removal of %s durable: %w", branch, err)
	}
	return nil
}
