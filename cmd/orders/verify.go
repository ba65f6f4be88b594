package orders

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/cmd/verifier"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Verify recomputes the windows from the source topic, by the evaluator of processor/verify, and
// compares both outputs with them up to the last proven epoch. The pipeline may be running, stopped or
// drained; who knows that it was drained says so, which leaves nothing to be seen in the outputs.
func Verify(ctx context.Context, c Config, ledger verifier.Ledger, drained bool) (verify.Report, error) {
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: c.Brokers})
	if err != nil {
		return verify.Report{}, err
	}
	defer admin.Close()
	partitions, err := admin.EndOffsets(ctx, c.From, true)
	if err != nil {
		return verify.Report{}, err
	}
	// In this order: what is proven is there, what is there is decided.
	proven, err := ledger.ProvenCut(ctx, &unisinkv1.ProvenCutRequest{Pipeline: Name})
	if err != nil {
		return verify.Report{}, err
	}
	topic := &topicOutput{admin: admin, topic: c.To}
	if topic.ends, err = admin.EndOffsets(ctx, c.To, true); err != nil {
		return verify.Report{}, err
	}
	files := &fileOutput{dir: c.Dir}
	if files.manifests, err = manifests(c.Dir); err != nil {
		return verify.Report{}, err
	}
	var splits []stream.Split
	for _, p := range slices.Sorted(maps.Keys(partitions)) {
		splits = append(splits, stream.Split{Resource: SourceAlias, ID: fmt.Sprintf("%s/%d", c.From, p)})
	}
	cut, err := verifier.CutOf(ctx, ledger, proven, SourceAlias, splits)
	if err != nil {
		return verify.Report{}, err
	}
	cut.Drained = drained
	fields := map[string]verify.Aggregate{fieldCount: verify.Count, fieldSum: verify.Sum}
	return verify.Run(ctx,
		verify.Pipeline{Window: WindowSize, Disorder: MaxDisorder, EventTime: fieldAt, Key: fieldCustomer, Value: fieldCents},
		&topicSource{admin: admin, topic: c.From},
		[]verify.Sink{
			{Name: TopicAlias, Reader: topic, Key: fieldCustomer, Start: fieldStart, Fields: fields},
			{Name: FilesAlias, Reader: files, Key: fieldCustomer, Start: fieldStart, Fields: fields},
		}, cut)
}

// topicSource reads the source again, each partition up to the cut.
type topicSource struct {
	admin *kafka.Admin
	topic string
}

func (s *topicSource) Read(ctx context.Context, to []stream.Position, f func(stream.Split, *stream.Record) error) error {
	first := map[int32]int64{}
	ends := map[int32]int64{}
	splits := map[int32]stream.Split{}
	for _, p := range to {
		partition, err := partitionOf(p.Split.ID, s.topic)
		if err != nil {
			return err
		}
		first[partition], ends[partition], splits[partition] = 0, p.Offset, p.Split
	}
	if len(to) == 0 {
		return nil
	}
	return s.admin.ReadAll(ctx, s.topic, true, first, ends, func(r *stream.Record) error { return f(splits[r.Partition], r) })
}

// partitionOf reads "topic/3".
func partitionOf(split, topic string) (int32, error) {
	at := strings.LastIndexByte(split, '/')
	n, err := strconv.ParseInt(split[at+1:], 10, 32)
	if at < 0 || err != nil || split[:at] != topic {
		return 0, fmt.Errorf("the pipeline's position names %q, which is no partition of the topic %q; name the topic that it reads", split, topic)
	}
	return int32(n), nil
}

// topicOutput reads what a reader of committed records sees, up to where that went.
type topicOutput struct {
	admin *kafka.Admin
	topic string
	ends  map[int32]int64
}

func (o *topicOutput) Read(ctx context.Context, f func(verify.Output) error) error {
	return o.admin.ReadAll(ctx, o.topic, true, nil, o.ends, func(r *stream.Record) error {
		generation, n, _ := kafka.EpochOf(r) // without the header the epochs of the two outputs are not compared
		return f(verify.Output{
			Key: r.Key, Value: r.Value, Generation: generation, N: n, Place: fmt.Sprintf("%s/%d offset %d", r.Topic, r.Partition, r.Offset),
		})
	})
}

// fileOutput reads what manifests name, which is what a reader of whole epochs sees.
type fileOutput struct {
	dir       string
	manifests []file.Manifest
}

func manifests(dir string) ([]file.Manifest, error) {
	found, err := file.ReadManifests(nil, dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%w: %s holds no manifests, so no pipeline has written there; name its directory with --dir", participant.ErrMisconfigured, dir)
	}
	return found, err
}

func (o *fileOutput) Read(ctx context.Context, f func(verify.Output) error) error {
	for _, m := range o.manifests {
		for _, p := range m.Files {
			if err := o.readFile(ctx, m, p.Name, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *fileOutput) readFile(ctx context.Context, m file.Manifest, name string, f func(verify.Output) error) (err error) {
	r, err := os.Open(filepath.Join(o.dir, name))
	if err != nil {
		return fmt.Errorf("the manifest of epoch %d.%d names a file that can't be read: %w", m.Name.Generation, m.Name.N, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f(verify.Output{
			Value: lines.Bytes(), Generation: m.Name.Generation, N: m.Name.N, Place: fmt.Sprintf("%s line %d", name, n),
		})
		if err != nil {
			return err
		}
	}
	return lines.Err()
}
