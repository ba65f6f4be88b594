package orders

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/adapters/kafka"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
	unisinkv1 "github.com/unisink/unisink/proto/unisink/v1"
)

// Verify recomputes the windows from the source topic, by the evaluator of processor/verify, and
// compares both outputs with them up to the cut. Each output is the other's witness as well: what
// is in one must be in the other.
func Verify(ctx context.Context, c Config, cut verify.Cut) (verify.Report, error) {
	admin, err := kafka.NewAdmin(kafka.AdminConfig{Brokers: c.Brokers})
	if err != nil {
		return verify.Report{}, err
	}
	defer admin.Close()
	fields := map[string]verify.Aggregate{fieldCount: verify.Count, fieldSum: verify.Sum}
	return verify.Run(ctx,
		verify.Pipeline{Window: WindowSize, Disorder: MaxDisorder, EventTime: fieldAt, Key: fieldCustomer, Value: fieldCents},
		&topicSource{admin: admin, topic: c.From},
		[]verify.Sink{
			{Name: TopicAlias, Reader: &topicOutput{admin: admin, topic: c.To}, Key: fieldCustomer, Start: fieldStart, Fields: fields},
			{Name: FilesAlias, Reader: &fileOutput{dir: c.Dir}, Key: fieldCustomer, Start: fieldStart, Fields: fields},
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

// topicOutput reads what a reader of committed records sees.
type topicOutput struct {
	admin *kafka.Admin
	topic string
}

func (o *topicOutput) Read(ctx context.Context, f func(verify.Output) error) error {
	return o.admin.ReadAll(ctx, o.topic, true, nil, nil, func(r *stream.Record) error {
		return f(verify.Output{Key: r.Key, Value: r.Value, Place: fmt.Sprintf("%s/%d offset %d", r.Topic, r.Partition, r.Offset)})
	})
}

// fileOutput reads what manifests name, which is what a reader of whole epochs sees.
type fileOutput struct{ dir string }

func (o *fileOutput) Read(ctx context.Context, f func(verify.Output) error) error {
	manifests, err := file.ReadManifests(nil, o.dir)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s holds no manifests, so no pipeline has written there: %w", o.dir, participant.ErrMisconfigured)
	}
	if err != nil {
		return err
	}
	for _, m := range manifests {
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

// Cut is the last proven epoch, as the coordinator knows it.
func Cut(r *unisinkv1.ProvenCutResponse, drained bool) verify.Cut {
	out := verify.Cut{Drained: drained}
	for _, s := range r.GetScopes() {
		for _, p := range s.GetPositions() {
			if p.GetResource() != SourceAlias {
				continue
			}
			out.Positions = append(out.Positions, stream.Position{
				Split: stream.Split{Resource: p.GetResource(), ID: p.GetSplit()}, Offset: p.GetOffset(), LeaderEpoch: p.GetLeaderEpoch(), Opaque: p.GetOpaque(),
			})
		}
	}
	return out
}
