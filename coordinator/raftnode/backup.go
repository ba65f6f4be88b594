package raftnode

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/internal/mutant"
)

// A backup is backupMagic, one line of JSON (Backup), a snapshot as raft keeps it, and the SHA-256 of
// all that, in hexadecimal on a line of its own.
const (
	backupMagic  = "unisink backup\n"
	backupFormat = 1
	backupSum    = 2*sha256.Size + 1
	headLimit    = 64 << 10

	// generationsAside is how far the counter of generations is raised: the group that the backup was
	// taken of may have opened as many since, and no number may come twice.
	generationsAside = 1 << 20
)

// Backup says what a backup holds.
type Backup struct {
	Format      uint32 `json:"format"`
	Namespace   string `json:"namespace"`
	Incarnation uint64 `json:"incarnation"`
	// Index of the log up to which everything is held; Term of the leader that wrote the backup.
	Index        uint64    `json:"index"`
	Term         uint64    `json:"term"`
	FeatureLevel uint32    `json:"feature_level"`
	Taken        time.Time `json:"taken"`
	Node         string    `json:"node"` // that wrote it
	Pipelines    int       `json:"pipelines"`
	Scopes       int       `json:"scopes"`
	Transactions int       `json:"transactions"` // run by hand
}

// What a backup file can be refused for.
var (
	// ErrBackup: the file is no whole backup that this version can read.
	ErrBackup = errors.New("not a usable backup")
	// ErrOccupied: the place to restore to holds something.
	ErrOccupied = errors.New("restore into an empty place")
)

// Backup writes a backup of everything that was committed before the call, as the log says, and
// nothing that is not. Errors as for Barrier; what was written before one is no backup.
func (n *Node) Backup(ctx context.Context, w io.Writer) error {
	if err := n.Barrier(ctx); err != nil {
		return err
	}
	b := Backup{
		Format: backupFormat, Index: n.raft.AppliedIndex(), Term: n.raft.CurrentTerm(), Taken: time.Now().UTC().Truncate(time.Millisecond),
		Node: n.config.NodeID,
	}
	var now *ledger.Frozen
	n.View(func(m *ledger.Machine) { now = m.Freeze() }) // as of Index or later
	return writeBackup(w, b, now.State())
}

func writeBackup(w io.Writer, b Backup, st ledger.State) error {
	b.Namespace, b.Incarnation, b.FeatureLevel = st.Namespace, st.Incarnation, st.FeatureLevel
	b.Pipelines, b.Scopes, b.Transactions = len(st.Pipelines), len(st.Scopes), len(st.Txns)
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	head, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("write the backup's head: %w", err)
	}
	if _, err := fmt.Fprintf(both, "%s%s\n", backupMagic, head); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if err := writeSnapshot(both, st); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if _, err := fmt.Fprintf(w, "%x\n", sum.Sum(nil)); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

// ReadBackup reads and checks a whole backup file. ErrBackup, in one sentence, if it is cut, damaged,
// something else or of a newer version.
func ReadBackup(path string) (Backup, error) {
	b, _, err := readBackup(path)
	return b, err
}

func readBackup(path string) (Backup, *ledger.Machine, error) {
	bad := func(format string, args ...any) (Backup, *ledger.Machine, error) {
		return Backup{}, nil, fmt.Errorf("%w: %s %w", ErrBackup, path, fmt.Errorf(format, args...))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Backup{}, nil, fmt.Errorf("read the backup: %w", err)
	}
	rest, ok := bytes.CutPrefix(content, []byte(backupMagic))
	if !ok {
		return bad("does not begin as a backup does")
	}
	line, _, ok := bytes.Cut(rest[:min(len(rest), headLimit)], []byte("\n"))
	var b Backup
	if err := json.Unmarshal(line, &b); !ok || err != nil {
		return bad("is cut or damaged in its head")
	}
	if b.Format != backupFormat {
		return bad("has format %d, and this version reads format %d; use the version that wrote it, or a newer one", b.Format, backupFormat)
	}
	body, said, err := splitSum(content)
	if sum := sha256.Sum256(body); err != nil || !bytes.Equal(sum[:], said) && !mutant.On("raft/backup-checksum") {
		return bad("is cut or damaged: its checksum does not fit; use another copy")
	}
	m, err := readSnapshot(bytes.NewReader(body[len(backupMagic)+len(line)+1:]))
	if err != nil {
		return bad("is not understood by this version: %w", err)
	}
	if name, incarnation := m.Namespace(); name != b.Namespace || incarnation != b.Incarnation {
		return bad("contradicts itself: its head names %q, incarnation %d, and its content %q, incarnation %d", b.Namespace, b.Incarnation, name, incarnation)
	}
	return b, m, nil
}

// splitSum takes the checksum off the end.
func splitSum(content []byte) (body, sum []byte, err error) {
	if len(content) < backupSum || content[len(content)-1] != '\n' {
		return nil, nil, errDamaged
	}
	at := len(content) - backupSum
	sum, err = hex.DecodeString(string(content[at : len(content)-1]))
	return content[:at], sum, err
}

// Restoration says how a group is made from a backup.
type Restoration struct {
	File    string // the backup
	DataDir string // made; must not exist, or be empty
	// Node is the one voter of the new group; others are added once it runs.
	Node ledger.Node
	// Namespace, when not empty, must be the backup's.
	Namespace string
	// Now is when the backup is restored; what is younger was certainly not forgotten.
	Now time.Time
}

// RestoreBackup makes the data directory of a new group of one node, offline; on return with nil it is
// on disk, whole. The backup may have forgotten what was decided after it was taken, so the group
// presumes nothing: its incarnation is new, and names of the old one are left alone; generations go on
// far above the old ones; every scope is halted until an operator resumes it; and hand-run ids that are
// older than Now and unknown get no verdict. It returns what the backup holds.
func RestoreBackup(r Restoration) (Backup, error) {
	b, old, err := readBackup(r.File)
	if err != nil {
		return b, err
	}
	if r.Namespace != "" && r.Namespace != b.Namespace {
		return b, fmt.Errorf("%w: %s is of namespace %q, not %q", ErrBackup, r.File, b.Namespace, r.Namespace)
	}
	if err := ledger.CheckName("node", r.Node.ID, MaxNodeID); err != nil {
		return b, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := checkEmpty(r.DataDir); err != nil {
		return b, err
	}
	st, err := halted(old.State(), b, r)
	if err != nil {
		return b, err
	}
	parent := filepath.Dir(filepath.Clean(r.DataDir))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return b, fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	// Whoever finds the directory finds all of it: made beside its place, renamed when it is whole.
	beside, err := os.MkdirTemp(parent, ".restoring-*")
	if err != nil {
		return b, fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	if err := r.fill(beside, b, st); err != nil {
		return b, errors.Join(fmt.Errorf("restore into %s: %w", r.DataDir, err), os.RemoveAll(beside))
	}
	if err := os.Rename(beside, r.DataDir); err != nil { // over an empty directory, or none
		return b, errors.Join(fmt.Errorf("%w: %w", ErrOccupied, err), os.RemoveAll(beside))
	}
	return b, syncDir(parent)
}

func checkEmpty(dir string) error {
	if dir == "" {
		return fmt.Errorf("%w: the data directory is not set", ErrConfig)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	case len(entries) > 0:
		return fmt.Errorf("%w: %s holds something already, and nothing was changed; name a directory that does not exist", ErrOccupied, dir)
	}
	return nil
}

// halted is the state that the new group begins with.
func halted(st ledger.State, b Backup, r Restoration) (ledger.State, error) {
	at := r.Now.UnixMilli()
	st.Incarnation++
	if !mutant.On("raft/restored-generations") {
		st.LastGeneration += generationsAside
	}
	st.Forgotten = at + ledger.MaxAhead // the clocks of clients may have been ahead
	st.Nodes = nil
	for i := range st.Txns {
		if t := &st.Txns[i]; t.Outcome == ledger.Pending {
			t.Deadline = never // it may have been committed since: nobody presumes that it was not
		}
	}
	why := fmt.Sprintf("restored from a backup of %s: what was decided after it is not known here; compare with the resources, then resume",
		b.Taken.Format(time.RFC3339))
	for i := range st.Scopes {
		if s := &st.Scopes[i]; s.Halted != "" && len(why)+len(s.Halted)+20 < ledger.MaxText {
			s.Halted = why + "; halted before that: " + s.Halted
		}
	}
	m, err := ledger.Load(st)
	if err != nil {
		return st, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	do := func(body ledger.Body) error {
		res, _ := m.Apply(ledger.Command{Request: fmt.Sprintf("restore-%d-%d", st.Incarnation, at), Actor: "restore", At: at, Body: body})
		if !res.OK() {
			return fmt.Errorf("%T: %s", body, res.Text)
		}
		return nil
	}
	errs := []error{do(ledger.PutNode{Node: r.Node})}
	if m.FeatureLevel() >= ledger.AuditLevel {
		errs = append(errs, do(ledger.Note{Kind: "restore backup", What: fmt.Sprintf("as of index %d, taken %s", b.Index, b.Taken.Format(time.RFC3339))}))
	}
	for _, s := range st.Scopes {
		if _, there := m.Pipeline(s.ID.Pipeline); !there {
			continue // deleted, and all of it proven
		}
		var g ledger.Generation
		if k := len(s.Generations); k > 0 {
			g = s.Generations[k-1].Generation
		}
		if !mutant.On("raft/restored-halted") {
			errs = append(errs, do(ledger.CloseGeneration{Scope: s.ID, Generation: g, Cause: "restored from a backup", Halt: why}))
		}
	}
	return m.State(), errors.Join(errs...)
}

// never is later than any clock.
const never = 1 << 60

// fill makes a data directory: identity, an empty log with its term, and the state as a snapshot.
func (r Restoration) fill(dir string, b Backup, st ledger.State) (err error) {
	id := identity{Node: r.Node.ID, Namespace: st.Namespace, Incarnation: st.Incarnation}
	if err := id.write(dir); err != nil {
		return err
	}
	bolt, err := openBolt(dir)
	if err != nil {
		return err
	}
	term := b.Term + 1
	if err := errors.Join(bolt.SetUint64(termKey, term), bolt.Close()); err != nil {
		return err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	// The log begins behind a founding, see probation.
	index := max(b.Index, foundingEntries)
	_, encodes := raft.NewInmemTransport(raft.ServerAddress(r.Node.RaftAddress)) // addresses, as the real one does
	sink, err := files.Create(raft.SnapshotVersionMax, index, term, configuration([]ledger.Node{r.Node}), index, encodes)
	if err != nil {
		return err
	}
	if err := (snapshot{state: func() ledger.State { return st }}).Persist(sink); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
