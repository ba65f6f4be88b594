package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/participanttest"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/tests/jepsen-style/check"
)

// target is what a member's resource changes. It outlives the processes of its member.
type target interface {
	kind() string
	// process is one process's access, and what ends it as kill -9 does, or the power.
	process(hook participanttest.Hook) (participant.Resource, func(), error)
	write(ctx context.Context, b participant.Branch, record string) error
	// read puts what is committed, and what is left behind, into the history.
	read(ctx context.Context) error
}

// memoryTarget is a store that tells every change while it happens.
type memoryTarget struct {
	w     *world
	name  string
	store *participanttest.Store
}

func (m *memoryTarget) kind() string { return participanttest.Kind }

func (m *memoryTarget) process(hook participanttest.Hook) (participant.Resource, func(), error) {
	r := m.store.Process()
	r.SetHook(hook)
	return r, r.Crash, nil
}

func (m *memoryTarget) write(_ context.Context, b participant.Branch, record string) error {
	return b.(*participanttest.MemoryBranch).Write(record)
}

func (m *memoryTarget) read(context.Context) error {
	m.w.held(m.name, m.store)
	return nil
}

// hooked is a resource of which every call passes a hook, as one of participanttest does. Once it is
// dead no call has an answer.
type hooked struct {
	participant.Resource
	hook participanttest.Hook
	dead *atomic.Bool
}

func (h *hooked) around(ctx context.Context, call participanttest.Call, name string, do func() error) error {
	if err := h.at(ctx, call, participanttest.Before, name); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return h.at(ctx, call, participanttest.After, name)
}

func (h *hooked) at(ctx context.Context, call participanttest.Call, when participanttest.When, name string) error {
	err := h.hook(ctx, call, when, name)
	if h.dead.Load() {
		return participanttest.ErrCrashed
	}
	return err
}

func (h *hooked) Open(ctx context.Context, o participant.Opening) error {
	return h.around(ctx, participanttest.CallOpen, o.Scope, func() error { return h.Resource.Open(ctx, o) })
}

func (h *hooked) Begin(ctx context.Context, name participant.BranchName) (b participant.Branch, err error) {
	err = h.around(ctx, participanttest.CallBegin, name.String(), func() error {
		inner, err := h.Resource.Begin(ctx, name)
		b = &hookedBranch{Branch: inner, h: h, name: name.String()}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (h *hooked) Commit(ctx context.Context, x participant.Handle) (p participant.Proof, err error) {
	err = h.around(ctx, participanttest.CallCommit, x.Name, func() error { p, err = h.Resource.Commit(ctx, x); return err })
	return p, err
}

func (h *hooked) Rollback(ctx context.Context, x participant.Handle) (p participant.Proof, err error) {
	err = h.around(ctx, participanttest.CallRollback, x.Name, func() error { p, err = h.Resource.Rollback(ctx, x); return err })
	return p, err
}

func (h *hooked) List(ctx context.Context, ns participant.Namespace) (all []participant.Listed, err error) {
	err = h.around(ctx, participanttest.CallList, ns.String(), func() error { all, err = h.Resource.List(ctx, ns); return err })
	return all, err
}

// hookedBranch is a branch of a hooked resource.
type hookedBranch struct {
	participant.Branch
	h    *hooked
	name string
}

func (b *hookedBranch) Prepare(ctx context.Context) (v participant.Vote, err error) {
	err = b.h.around(ctx, participanttest.CallPrepare, b.name, func() error { v, err = b.Branch.Prepare(ctx); return err })
	if err != nil {
		return participant.Vote{}, err
	}
	return v, nil
}

// inner is the adapter's own branch.
func inner(b participant.Branch) participant.Branch {
	if h, ok := b.(*hookedBranch); ok {
		return h.Branch
	}
	return b
}

// fileTarget is a directory on a disk that forgets what was not synced.
type fileTarget struct {
	w    *world
	name string
	disk *crashfs.Mem
	most int64 // bytes of one file
}

const fileDir = "/data/out"

func newFileTarget(w *world, name string, most int64) *fileTarget {
	return &fileTarget{w: w, name: name, disk: crashfs.NewMem("/data"), most: most}
}

func (f *fileTarget) kind() string { return file.Kind }

func (f *fileTarget) process(hook participanttest.Hook) (participant.Resource, func(), error) {
	dead := new(atomic.Bool)
	s, err := file.NewSink(file.SinkConfig{Dir: fileDir, FS: &mortalFS{f.disk, dead}, MaxFileBytes: f.most})
	if err != nil {
		return nil, nil, err
	}
	return &hooked{Resource: s, hook: hook, dead: dead}, func() {
		dead.Store(true)
		if f.w.draw(2) == 0 {
			f.disk.Reboot() // the power fails, and not the process alone
		}
	}, nil
}

func (f *fileTarget) write(ctx context.Context, b participant.Branch, record string) error {
	return inner(b).(*file.Branch).Write(ctx, []stream.Record{{Value: []byte(record)}})
}

func (f *fileTarget) read(ctx context.Context) error {
	f.disk.Reboot() // what counts is what lasts
	published, err := file.ReadManifests(f.disk, fileDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", f.name, err)
	}
	for _, m := range published {
		var records []string
		for _, p := range m.Files {
			text, err := crashfs.ReadFile(f.disk, filepath.Join(fileDir, p.Name))
			if err != nil {
				return fmt.Errorf("%s: a manifest names %s: %w", f.name, p.Name, err)
			}
			records = append(records, strings.Fields(string(text))...)
		}
		f.w.committed(f.name, m.Name, m.Name.String(), records)
	}
	s, err := file.NewSink(file.SinkConfig{Dir: fileDir, FS: f.disk})
	if err != nil {
		return err
	}
	return errors.Join(f.w.listed(ctx, f.name, s), s.Close())
}

// committed is what a reader found at the end.
func (w *world) committed(store string, b participant.BranchName, handle string, records []string) {
	w.hist.Add(check.Event{Who: store, Kind: check.Committed, Store: store, Handle: handle, Records: records, AtEnd: true, Branch: check.Branch{
		Scope: b.Scope(), Member: b.Member, Resource: b.Resource, Epoch: check.Epoch{Generation: b.Generation, N: b.N},
	}})
}

// listed is what a resource lists as prepared at the end.
func (w *world) listed(ctx context.Context, store string, r participant.Resource) error {
	left, err := r.List(ctx, participant.Namespace{Name: namespace, Incarnation: 1})
	for _, x := range left {
		w.leftBehind(store, x.Name)
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", store, err)
	}
	return nil
}

// mortalFS is a process's way to a disk: when the process is dead, nothing that it does arrives.
type mortalFS struct {
	crashfs.FS
	dead *atomic.Bool
}

func (m *mortalFS) alive() error {
	if m.dead.Load() {
		return crashfs.ErrCrashed
	}
	return nil
}

func (m *mortalFS) OpenFile(name string, flag int, perm fs.FileMode) (crashfs.File, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	f, err := m.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &mortalFile{f, m}, nil
}

func (m *mortalFS) Link(oldName, newName string) error {
	return m.then(func() error { return m.FS.Link(oldName, newName) })
}

func (m *mortalFS) Rename(oldName, newName string) error {
	return m.then(func() error { return m.FS.Rename(oldName, newName) })
}

func (m *mortalFS) Remove(name string) error {
	return m.then(func() error { return m.FS.Remove(name) })
}

func (m *mortalFS) Mkdir(name string, perm fs.FileMode) error {
	return m.then(func() error { return m.FS.Mkdir(name, perm) })
}

func (m *mortalFS) SyncDir(name string) error {
	return m.then(func() error { return m.FS.SyncDir(name) })
}

func (m *mortalFS) then(do func() error) error {
	if err := m.alive(); err != nil {
		return err
	}
	return do()
}

// mortalFile is an open file of a process.
type mortalFile struct {
	crashfs.File
	fs *mortalFS
}

func (f *mortalFile) Write(b []byte) (int, error) {
	if err := f.fs.alive(); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f *mortalFile) Sync() error { return f.fs.then(f.File.Sync) }
