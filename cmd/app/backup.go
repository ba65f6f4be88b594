package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/unisink/unisink/coordinator/ledger"
	"github.com/unisink/unisink/coordinator/raftnode"
	"github.com/unisink/unisink/internal/grpcerr"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/participant/route"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

func (a *app) backup() *cli.Command {
	return group("backup", "a copy of what the coordinator group holds",
		&cli.Command{
			Name: "save", Usage: "write a backup of everything committed so far", ArgsUsage: "FILE",
			Description: "The file appears when it is whole, checked and on disk; one that is there already is not touched.",
			Action:      a.backupSave,
		},
		&cli.Command{
			Name: "restore", Usage: "make the data directory of a new group of one node, offline", ArgsUsage: "FILE",
			Description: "For a group that is lost for good: stop its nodes and keep them stopped. The new group presumes\n" +
				"nothing about what was decided after the backup: every pipeline is halted until you resume it. Start\n" +
				"the node with `unisink serve`, then add the others with `unisink cluster add`." +
				forExample("unisink backup restore unisink.backup --data /var/lib/unisink --node n1 --raft 10.0.0.1:7401 --client 10.0.0.1:7400"),
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "data", Usage: "`DIR` to make; must not exist, or be empty"},
				&cli.StringFlag{Name: "node", Usage: "`ID` of the node that will run on it"},
				&cli.StringFlag{Name: "raft", Usage: "`ADDRESS` at which other nodes will reach it"},
				&cli.StringFlag{Name: "client", Usage: "`ADDRESS` at which members and tools will reach it"},
				&cli.StringFlag{Name: "namespace", Usage: "`NAME` that the backup must be of"},
			},
			Action: a.backupRestore,
		},
		&cli.Command{
			Name: "show", Usage: "check a backup and say what it holds", ArgsUsage: "FILE", Action: a.backupShow,
		},
	)
}

func (a *app) backupSave(c *cli.Context) error {
	path, err := oneArg(c, "file")
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return failf(CodeRefused, "%s is there already and was not touched; name another file", path)
	}
	return a.changing(c, func(ctx context.Context, cl *participant.Client) error {
		at := func(addr string) (*participant.Client, error) { return connect(c, []string{addr}, patience(ctx)) }
		b, err := save(ctx, cl, at, path)
		if err != nil {
			return backupError(fmt.Errorf("save a backup: %w", err))
		}
		return a.showBackup(c, b)
	})
}

// save writes the backup beside its place, checks it as a restore would, and puts it there.
func save(ctx context.Context, cl *participant.Client, at func(addr string) (*participant.Client, error), path string) (b raftnode.Backup, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".backup-*")
	if err != nil {
		return b, err
	}
	defer func() {
		if removed := os.Remove(f.Name()); err != nil && !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}()
	err = download(ctx, cl, at, f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return b, err
	}
	if b, err = raftnode.ReadBackup(f.Name()); err != nil {
		return b, err
	}
	if err := os.Link(f.Name(), path); err != nil { // never over another file
		return b, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return b, err
	}
	return b, errors.Join(dir.Sync(), dir.Close())
}

// download asks whoever leads, until one has sent all of it.
func download(ctx context.Context, cl *participant.Client, at func(addr string) (*participant.Client, error), to *os.File) error {
	wait := route.NewBackOff()
	search, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	for {
		st, err := cl.Cluster().Status(ctx, &unisinkv1.StatusRequest{})
		switch {
		case err != nil:
			return err
		case st.GetNamespace() == "" && st.GetLeader() == "":
			return failf(CodeNoLeader, "node %s belongs to no group yet; run `unisink cluster bootstrap` once", st.GetNode())
		}
		err = failf(CodeNoLeader, "node %s knows of no leader; a majority of nodes must be up", st.GetNode())
		if addr := st.GetLeaderClientAddress(); addr != "" {
			if err = receiveAt(ctx, addr, at, to); err == nil {
				return nil
			}
			if reason, _ := grpcerr.Reason(err); reason != grpcerr.NotLeader {
				return err
			}
		}
		if !route.Sleep(search, wait.NextBackOff()) {
			return err
		}
		if err := errors.Join(to.Truncate(0), rewound(to)); err != nil {
			return err
		}
	}
}

func rewound(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

func receiveAt(ctx context.Context, addr string, at func(addr string) (*participant.Client, error), to io.Writer) error {
	cl, err := at(addr)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // nothing is under way on it
	return receive(ctx, cl, to)
}

// receive takes one backup from the one node that the client knows.
func receive(ctx context.Context, cl *participant.Client, to io.Writer) error {
	stream, err := cl.Cluster().Backup(ctx, &unisinkv1.BackupRequest{Meta: cl.NewMeta()})
	for err == nil {
		var piece *unisinkv1.BackupResponse
		if piece, err = stream.Recv(); err == nil {
			_, err = to.Write(piece.GetData())
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (a *app) backupRestore(c *cli.Context) error {
	path, err := oneArg(c, "file")
	if err != nil {
		return err
	}
	if err := need(c, "data", "node", "raft", "client"); err != nil {
		return err
	}
	for _, flag := range []string{"raft", "client"} {
		if _, _, err := net.SplitHostPort(c.String(flag)); err != nil {
			return usagef("--%s %q is not host:port", flag, c.String(flag))
		}
	}
	b, err := raftnode.RestoreBackup(raftnode.Restoration{
		File: path, DataDir: c.String("data"), Namespace: c.String("namespace"), Now: time.Now(),
		Node: ledger.Node{
			ID: c.String("node"), RaftAddress: c.String("raft"), ClientAddress: c.String("client"), FeatureLevel: ledger.CurrentFeatureLevel,
		},
	})
	if err != nil {
		return backupError(err)
	}
	return a.showBackup(c, b)
}

func (a *app) backupShow(c *cli.Context) error {
	path, err := oneArg(c, "file")
	if err != nil {
		return err
	}
	b, err := raftnode.ReadBackup(path)
	if err != nil {
		return backupError(err)
	}
	return a.showBackup(c, b)
}

// backupError gives what an operator can mend its exit code.
func backupError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return withCode(CodeNotFound, err)
	case errors.Is(err, raftnode.ErrBackup), errors.Is(err, raftnode.ErrOccupied):
		return withCode(CodeRefused, err)
	case errors.Is(err, raftnode.ErrConfig), errors.Is(err, raftnode.ErrDataDirUnusable):
		return withCode(CodeUsage, err)
	}
	return err
}

func (a *app) showBackup(c *cli.Context, b raftnode.Backup) error {
	return a.show(c, b, func() [][]string {
		return [][]string{
			{"NAMESPACE", "INCARNATION", "INDEX", "TAKEN", "PIPELINES", "SCOPES", "TRANSACTIONS"},
			{
				b.Namespace, fmt.Sprint(b.Incarnation), fmt.Sprint(b.Index), b.Taken.Format(time.RFC3339),
				fmt.Sprint(b.Pipelines), fmt.Sprint(b.Scopes), fmt.Sprint(b.Transactions),
			},
		}
	})
}
