package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
)

// entry is one line of an account.
type entry struct {
	Txn   string `json:"txn"`
	Cents int64  `json:"cents"`
	Text  string `json:"text"`
}

// bank is a directory with one directory per account.
type bank struct {
	client *participant.Client
	dir    string
	// process is the name of this process, the same at every start.
	process string
	// dieWhen is where the process kills itself, as kill -9 would: "prepared" or "decided"; "" nowhere.
	dieWhen string
}

// open makes accounts ready to be written to: the resource is made and then opened by the client,
// which gives it a fence of its own.
func (b *bank) open(ctx context.Context, names ...string) (map[string]*file.Sink, error) {
	sinks := map[string]*file.Sink{}
	resources := map[string]participant.Resource{}
	for _, name := range names {
		sink, err := file.NewSink(file.SinkConfig{Dir: filepath.Join(b.dir, name)})
		if err != nil {
			return nil, err
		}
		sinks[name], resources[name] = sink, sink
	}
	return sinks, b.client.Open(ctx, b.process, resources)
}

// run books what each account gets, everywhere or nowhere. It returns the transaction's id, with
// an error too: whoever is left in doubt can ask what became of it.
func (b *bank) run(ctx context.Context, text string, amounts map[string]int64) (txn string, err error) {
	names := slices.Sorted(maps.Keys(amounts))
	sinks, err := b.open(ctx, names...)
	if err != nil {
		return "", err
	}
	// Close publishes nothing: what is prepared stays prepared.
	defer func() { //nolint:contextcheck // it drops what was begun also when ctx is over
		for _, s := range sinks {
			err = errors.Join(err, s.Close())
		}
	}()
	ns, err := b.client.Namespace(ctx)
	if err != nil {
		return "", err
	}
	if txn, err = participant.NewTxnID(); err != nil {
		return "", err
	}
	// From here on the group knows of it: if this process dies now, it is aborted after a minute.
	if _, err := b.client.Begin(ctx, txn, names, time.Minute); err != nil {
		return txn, err
	}
	var left atomic.Int32
	left.Store(int32(len(names)))
	var branches []participant.TxnBranch
	for _, name := range names {
		branch, err := sinks[name].Begin(ctx, participant.BranchName{Namespace: ns, Txn: txn, Resource: name})
		if err != nil {
			return txn, err
		}
		line, err := json.Marshal(entry{Txn: txn, Cents: amounts[name], Text: text})
		if err != nil {
			return txn, err
		}
		if err := branch.(*file.Branch).Write(ctx, []stream.Record{{Value: line}}); err != nil {
			return txn, err
		}
		branches = append(branches, participant.TxnBranch{Name: name, Resource: frail{sinks[name], b}, Branch: frailBranch{branch, b, &left}})
	}
	out, err := b.client.RunTxn(ctx, txn, branches)
	if err == nil && out != participant.OutcomeCommitted {
		err = fmt.Errorf("transaction %s was %s; nothing has changed", txn, out)
	}
	return txn, err
}

// frail and frailBranch are a resource and its branch in a process that may kill itself.
type frail struct {
	participant.Resource
	b *bank
}

type frailBranch struct {
	participant.Branch
	b    *bank
	left *atomic.Int32 // branches that are not prepared yet
}

func (f frail) Commit(ctx context.Context, h participant.Handle) (participant.Proof, error) {
	f.b.die("decided")
	return f.Resource.Commit(ctx, h)
}

func (f frailBranch) Prepare(ctx context.Context) (participant.Vote, error) {
	vote, err := f.Branch.Prepare(ctx)
	if err == nil && f.left.Add(-1) == 0 {
		f.b.die("prepared")
	}
	return vote, err
}

func (b *bank) die(now string) {
	if b.dieWhen == now {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // if it fails we live, which the walk shows
		select {}
	}
}

// sweep finishes what killed processes have left.
func (b *bank) sweep(ctx context.Context) (participant.Swept, error) {
	names, err := b.accounts()
	if err != nil {
		return participant.Swept{}, err
	}
	resources := map[string]participant.Resource{}
	for _, name := range names {
		sink, err := file.NewSink(file.SinkConfig{Dir: filepath.Join(b.dir, name)})
		if err != nil {
			return participant.Swept{}, err
		}
		resources[name] = sink
	}
	return b.client.Sweep(ctx, resources, 0)
}

func (b *bank) accounts() ([]string, error) {
	entries, err := os.ReadDir(b.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the accounts: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// balance adds up an account as its readers see it: what a manifest names, and nothing else.
func (b *bank) balance(name string) (cents int64, entries int, err error) {
	dir := filepath.Join(b.dir, name)
	manifests, err := file.ReadManifests(nil, dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, 0, fmt.Errorf("there is no account %s; `transfer open %s AMOUNT` opens it", name, name)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read account %s: %w", name, err)
	}
	for _, m := range manifests {
		for _, f := range m.Files {
			c, n, err := sum(filepath.Join(dir, f.Name))
			if err != nil {
				return 0, 0, fmt.Errorf("read account %s: %w", name, err)
			}
			cents, entries = cents+c, entries+n
		}
	}
	return cents, entries, nil
}

func sum(name string) (cents int64, entries int, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return 0, 0, fmt.Errorf("%s, line %d: %w", name, entries+1, err)
		}
		cents, entries = cents+e.Cents, entries+1
	}
	return cents, entries, lines.Err()
}
