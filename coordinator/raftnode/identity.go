package raftnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/unisink/unisink/internal/mutant"
)

const identityFile = "identity.json"

// identity says whose a data directory is. It is written before anything else is, with the
// node's id, and again once the group's namespace is known. A voter that forgot its vote, or
// took another's log for its own, would break the group, so a mismatch is refused.
type identity struct {
	Node        string `json:"node"`
	Namespace   string `json:"namespace,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`
}

// claim makes dir the node's own, or checks that it is.
func claim(dir, node, namespace string) (identity, error) {
	have, err := readIdentity(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, logFile)); err == nil {
			return identity{}, fmt.Errorf("%w: %s holds a log and no %s, so nobody knows whose it is; use an empty directory and a new node id",
				ErrForeignDataDir, dir, identityFile)
		}
		have = identity{Node: node}
		return have, have.write(dir)
	}
	if err != nil {
		return identity{}, err
	}
	if have.Node != node && !mutant.On("raft/foreign-directory") {
		return identity{}, fmt.Errorf("%w: %s belongs to node %q, and this is node %q; start it under its own id, or use another directory",
			ErrForeignDataDir, dir, have.Node, node)
	}
	if namespace != "" && have.Namespace != "" && have.Namespace != namespace {
		return identity{}, fmt.Errorf("%w: %s belongs to the group of namespace %q, and this node is set up for %q; use another directory",
			ErrForeignDataDir, dir, have.Namespace, namespace)
	}
	return have, nil
}

// checkLog refuses a directory that belongs to a group and has no log.
func (id identity) checkLog(dir string) error {
	if id.Namespace == "" || mutant.On("raft/emptied-directory") {
		return nil
	}
	path := filepath.Join(dir, logFile)
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return id.emptied(path + " is missing")
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	case info.Size() == 0:
		return id.emptied(path + " is empty")
	}
	return nil
}

// emptied says what was lost and what to do.
func (id identity) emptied(what string) error {
	return fmt.Errorf("%w: %s, and %s says that this node belongs to the group of namespace %q; bring the log back, or, if it is lost, "+
		"remove the whole directory while the other nodes run, so that the node starts anew and catches up", ErrDataDirEmptied, what, identityFile, id.Namespace)
}

func readIdentity(dir string) (identity, error) {
	path := filepath.Join(dir, identityFile)
	text, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return identity{}, err
		}
		return identity{}, fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	var id identity
	if err := json.Unmarshal(text, &id); err != nil {
		return identity{}, fmt.Errorf("%w: %s is damaged: %w", ErrDataDirUnusable, path, err)
	}
	return id, nil
}

// adopt records the group's name. A directory that already has another one is refused.
func (id identity) adopt(dir, namespace string, incarnation uint64) (identity, error) {
	if id.Namespace != "" && id.Namespace != namespace {
		return id, fmt.Errorf("%w: %s belongs to the group of namespace %q, and its log says %q", ErrForeignDataDir, dir, id.Namespace, namespace)
	}
	if id.Incarnation != 0 && id.Incarnation != incarnation && !mutant.On("raft/one-incarnation") {
		return id, fmt.Errorf("%w: %s belongs to incarnation %d of namespace %q, and a node of incarnation %d has taken it for its own; "+
			"stop the nodes of the other incarnation for good, and restore the backup once more", ErrForeignDataDir, dir, id.Incarnation, namespace, incarnation)
	}
	if id.Namespace == namespace && id.Incarnation == incarnation {
		return id, nil
	}
	id.Namespace, id.Incarnation = namespace, incarnation
	return id, id.write(dir)
}

// write replaces the file; on return it is on disk, whole.
func (id identity) write(dir string) error {
	text, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", identityFile, err)
	}
	if err := replaceFile(filepath.Join(dir, identityFile), append(text, '\n')); err != nil {
		return fmt.Errorf("%w: %w", ErrDataDirUnusable, err)
	}
	return nil
}

// replaceFile writes a file beside path, syncs it, renames it over path and syncs the directory.
func replaceFile(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
