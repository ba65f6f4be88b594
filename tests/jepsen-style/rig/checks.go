package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Clean is the verdict of `unisink verify` when nothing is wrong.
const Clean = "clean"

// Verify runs `unisink verify` with some arguments behind it, and returns its report. Problem says what it has
// found, which its exit code is part of; it is empty when all is well.
func Verify(ctx context.Context, bin string, args ...string) (report json.RawMessage, problem string, err error) {
	cmd := exec.CommandContext(ctx, bin, append([]string{"verify", "-o", "json"}, args...)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, "", fmt.Errorf("run unisink verify: %w", err)
	}
	var verdict struct {
		Verdict string
		Records int64
	}
	failed := exit != nil
	if err := json.Unmarshal(out, &verdict); err != nil {
		return nil, fmt.Sprintf("verify gave no report (%v), exit code %d: %s", err, cmd.ProcessState.ExitCode(), strings.TrimSpace(said.String())), nil
	}
	switch {
	case failed || verdict.Verdict != Clean:
		problem = fmt.Sprintf("verify says %q: %s", verdict.Verdict, strings.TrimSpace(said.String()))
	case verdict.Records == 0:
		problem = "verify saw no records"
	}
	return out, problem, nil
}

// LeftOpen asks the broker, in words of its own, what is still open: transactions that are not at
// rest, producers with an open transaction in any partition, readers of committed records who are
// held back. It counts the transactional ids of a namespace as well.
func LeftOpen(ctx context.Context, cl *kgo.Client, namespace string) (ids int, left []string, err error) {
	adm := kadm.NewClient(cl)
	all, err := adm.ListTransactions(ctx, nil, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("list transactions: %w", err)
	}
	for _, t := range all.Sorted() {
		if !strings.HasPrefix(t.TxnID, namespace+".") {
			continue
		}
		ids++
		switch t.State {
		case "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence":
			left = append(left, fmt.Sprintf("transaction %s is %s", t.TxnID, t.State))
		}
	}
	topics, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("list topics: %w", err)
	}
	var producers []string
	described, err := adm.DescribeProducers(ctx, topics.TopicsSet())
	if err != nil {
		return 0, nil, fmt.Errorf("describe the producers of all partitions: %w", err)
	}
	for _, p := range described.SortedPartitions() {
		if p.Err != nil {
			return 0, nil, fmt.Errorf("describe the producers of %s/%d: %w", p.Topic, p.Partition, p.Err)
		}
		for _, a := range p.ActiveProducers.Sorted() {
			if a.CurrentTxnStartOffset >= 0 {
				producers = append(producers, fmt.Sprintf("producer %d has a transaction open in %s/%d since offset %d", a.ProducerID, p.Topic, p.Partition, a.CurrentTxnStartOffset))
			}
		}
	}
	held, err := heldBack(ctx, adm, topics.Names())
	return ids, append(append(left, producers...), held...), err
}

// heldBack returns the partitions whose committed records end before all records do.
func heldBack(ctx context.Context, adm *kadm.Client, topics []string) (left []string, err error) {
	stable, err := adm.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list committed offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list end offsets: %w", err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		if at, ok := stable.Lookup(end.Topic, end.Partition); !ok || at.Offset != end.Offset {
			left = append(left, fmt.Sprintf("readers of %s/%d see committed records up to offset %d of %d", end.Topic, end.Partition, at.Offset, end.Offset))
		}
	})
	return left, nil
}

// Staged returns the files that are written and not published, below an output directory. Scratch
// files of killed processes are no staged files: the adapter removes them once they are old.
func Staged(dir string) (left []string, err error) {
	root := filepath.Join(dir, ".unisink", "staged")
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != root {
			left = append(left, "staged and not published: "+strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for staged files: %w", err)
	}
	return left, nil
}
