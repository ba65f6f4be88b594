package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// ErrCrashed is what every operation answers between CrashAfter's moment and Reboot.
var ErrCrashed = errors.New("the machine has crashed")

// Op names an operation for Fail and for the count of CrashAfter.
type Op string

// The operations that change something or make it durable.
const (
	OpCreate  Op = "create"
	OpWrite   Op = "write"
	OpSync    Op = "sync"
	OpSyncDir Op = "syncdir"
	OpLink    Op = "link"
	OpRename  Op = "rename"
	OpRemove  Op = "remove"
	OpMkdir   Op = "mkdir"
)

// Mem is a file system in memory that keeps two copies of everything: what a process sees, and
// what would be there after a power failure. It is safe for concurrent use.
type Mem struct {
	mu      sync.Mutex // guards everything below; held for memory only
	root    *node
	ops     int
	crashAt int // 0: never
	crashed bool
	boot    int // files of an earlier boot are dead
	fail    func(op Op, name string) error
}

// node is a file or a directory. A directory's names and a file's content exist twice.
type node struct {
	dir           bool
	seen, durable map[string]*node // directory
	data, synced  []byte           // file
}

// NewMem makes an empty file system with the directories given, all durable.
func NewMem(dirs ...string) *Mem {
	m := &Mem{root: newDir()}
	for _, d := range dirs {
		at := m.root
		for _, part := range split(d) {
			next := at.seen[part]
			if next == nil {
				next = newDir()
				at.seen[part], at.durable[part] = next, next
			}
			at = next
		}
	}
	return m
}

func newDir() *node {
	return &node{dir: true, seen: map[string]*node{}, durable: map[string]*node{}}
}

// CrashAfter lets n more operations happen; the one after that and all later ones answer
// ErrCrashed until Reboot. A negative n means never.
func (m *Mem) CrashAfter(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ops, m.crashAt, m.crashed = 0, n+1, false
	if n < 0 {
		m.crashAt = 0
	}
}

// Crashed reports whether the moment of CrashAfter came.
func (m *Mem) Crashed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crashed
}

// Ops counts the operations since CrashAfter, or since the beginning.
func (m *Mem) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// Fail has f asked before every operation; what it returns is the operation's answer. Nil ends it.
func (m *Mem) Fail(f func(op Op, name string) error) {
	m.mu.Lock()
	m.fail = f
	m.mu.Unlock()
}

// Reboot is a power failure, or the end of one: what was not synced is gone. Open files are dead.
func (m *Mem) Reboot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	forget(m.root)
	m.crashAt, m.crashed, m.ops = 0, false, 0
	m.boot++
}

func forget(n *node) {
	if !n.dir {
		n.data = slices.Clone(n.synced)
		return
	}
	n.seen = maps.Clone(n.durable)
	for _, c := range n.seen {
		forget(c)
	}
}

// step counts an operation and says whether it may happen. The lock is held.
func (m *Mem) step(op Op, name string) error {
	if m.crashed {
		return ErrCrashed
	}
	m.ops++
	if m.crashAt > 0 && m.ops >= m.crashAt {
		m.crashed = true
		return ErrCrashed
	}
	if m.fail != nil {
		if err := m.fail(op, name); err != nil {
			return &fs.PathError{Op: string(op), Path: name, Err: err}
		}
	}
	return nil
}

func split(name string) []string {
	var parts []string
	for p := filepath.Clean(name); ; {
		dir, base := filepath.Split(p)
		if base != "" && base != "." {
			parts = append(parts, base)
		}
		dir = filepath.Clean(dir)
		if dir == p || dir == "." || dir == string(filepath.Separator) {
			break
		}
		p = dir
	}
	slices.Reverse(parts)
	return parts
}

// find walks to a node. The lock is held.
func (m *Mem) find(name string) (*node, error) {
	at := m.root
	for _, p := range split(name) {
		if !at.dir {
			return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a directory")}
		}
		next := at.seen[p]
		if next == nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		at = next
	}
	return at, nil
}

// parent walks to the directory that has, or will have, the name. The lock is held.
func (m *Mem) parent(name string) (*node, string, error) {
	dir, base := filepath.Split(filepath.Clean(name))
	n, err := m.find(dir)
	if err != nil {
		return nil, "", err
	}
	if !n.dir {
		return nil, "", &fs.PathError{Op: "open", Path: name, Err: errors.New("not a directory")}
	}
	return n, base, nil
}

// OpenFile knows O_RDONLY, O_WRONLY, O_RDWR, O_CREATE, O_EXCL, O_TRUNC and O_APPEND.
func (m *Mem) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed {
		return nil, ErrCrashed
	}
	d, base, err := m.parent(name)
	if err != nil {
		return nil, err
	}
	n := d.seen[base]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case n != nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case n != nil && n.dir:
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is a directory")}
	case n == nil:
		if err := m.step(OpCreate, name); err != nil {
			return nil, err
		}
		n = &node{}
		d.seen[base] = n
	}
	f := &memFile{m: m, n: n, name: name, boot: m.boot, appends: flag&os.O_APPEND != 0}
	if flag&os.O_TRUNC != 0 {
		n.data = nil
	}
	return f, nil
}

// Link gives a file a second name.
func (m *Mem) Link(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(oldName)
	if err != nil {
		return err
	}
	d, base, err := m.parent(newName)
	if err != nil {
		return err
	}
	if d.seen[base] != nil {
		return &fs.PathError{Op: "link", Path: newName, Err: fs.ErrExist}
	}
	if err := m.step(OpLink, newName); err != nil {
		return err
	}
	d.seen[base] = n
	return nil
}

// Rename moves a name. After a crash the file may be found under the old name, the new one, or
// both, as the directories were synced; like a real disk, and unlike POSIX's wording, neither
// name is lost.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.parent(oldName)
	if err != nil {
		return err
	}
	n := from.seen[oldBase]
	if n == nil {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fs.ErrNotExist}
	}
	to, newBase, err := m.parent(newName)
	if err != nil {
		return err
	}
	if err := m.step(OpRename, newName); err != nil {
		return err
	}
	delete(from.seen, oldBase)
	to.seen[newBase] = n
	return nil
}

// Remove removes a file or an empty directory.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(name)
	if err != nil {
		return err
	}
	n := d.seen[base]
	switch {
	case n == nil:
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	case n.dir && len(n.seen) > 0:
		return &fs.PathError{Op: "remove", Path: name, Err: errors.New("directory not empty")}
	}
	if err := m.step(OpRemove, name); err != nil {
		return err
	}
	delete(d.seen, base)
	return nil
}

// Mkdir makes one directory.
func (m *Mem) Mkdir(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(name)
	if err != nil {
		return err
	}
	if d.seen[base] != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	if err := m.step(OpMkdir, name); err != nil {
		return err
	}
	d.seen[base] = newDir()
	return nil
}

// Stat describes a name.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed {
		return nil, ErrCrashed
	}
	n, err := m.find(name)
	if err != nil {
		return nil, err
	}
	return n.info(filepath.Base(name)), nil
}

// ReadDir lists a directory.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed {
		return nil, ErrCrashed
	}
	n, err := m.find(name)
	if err != nil {
		return nil, err
	}
	if !n.dir {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a directory")}
	}
	var out []fs.DirEntry
	for _, base := range slices.Sorted(maps.Keys(n.seen)) {
		out = append(out, fs.FileInfoToDirEntry(n.seen[base].info(base)))
	}
	return out, nil
}

// SyncDir makes the names in a directory durable.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return err
	}
	if err := m.step(OpSyncDir, name); err != nil {
		return err
	}
	n.durable = maps.Clone(n.seen)
	return nil
}

type memFile struct {
	m       *Mem
	n       *node
	name    string
	at      int64
	boot    int
	appends bool
	closed  bool
}

// check says whether the file is still there to be used. The lock is held.
func (f *memFile) check() error {
	switch {
	case f.closed:
		return fs.ErrClosed
	case f.m.crashed || f.boot != f.m.boot:
		return ErrCrashed
	}
	return nil
}

func (f *memFile) Read(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check(); err != nil {
		return 0, err
	}
	if f.at >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[f.at:])
	f.at += int64(n)
	return n, nil
}

func (f *memFile) Write(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check(); err != nil {
		return 0, err
	}
	if err := f.m.step(OpWrite, f.name); err != nil {
		return 0, err
	}
	if f.appends {
		f.at = int64(len(f.n.data))
	}
	if need := f.at + int64(len(p)); need > int64(len(f.n.data)) {
		f.n.data = append(f.n.data, make([]byte, need-int64(len(f.n.data)))...)
	}
	copy(f.n.data[f.at:], p)
	f.at += int64(len(p))
	return len(p), nil
}

func (f *memFile) Seek(offset int64, whence int) (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += int64(len(f.n.data))
	default:
		return 0, fmt.Errorf("seek %s: whence %d is not known", f.name, whence)
	}
	f.at = offset
	return offset, nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check(); err != nil {
		return err
	}
	if err := f.m.step(OpSync, f.name); err != nil {
		return err
	}
	f.n.synced = slices.Clone(f.n.data)
	return nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}

func (f *memFile) Stat() (fs.FileInfo, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check(); err != nil {
		return nil, err
	}
	return f.n.info(filepath.Base(f.name)), nil
}

func (n *node) info(name string) fs.FileInfo {
	return memInfo{name: name, size: int64(len(n.data)), dir: n.dir}
}

type memInfo struct {
	name string
	size int64
	dir  bool
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
