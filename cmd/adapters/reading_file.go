package adapters

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/processor/spec"
	"github.com/unisink/unisink/processor/stream"
	"github.com/unisink/unisink/processor/verify"
)

func fileReading() *Reading { return &Reading{Source: readFileSource, Sink: readFileSink} }

// files reads a source directory again.
type files struct {
	source *file.Source
	sizes  map[stream.Split]int64
}

func readFileSource(ctx context.Context, e spec.Env, u Use) (*SourceReading, error) {
	var in fileSource
	if err := u.Settings.Decode(&in); err != nil {
		return nil, err
	}
	s, err := file.NewSource(file.SourceConfig{Name: u.Name, Dir: in.Dir, Lines: in.Lines, BatchRecords: in.BatchRecords, MaxRecordBytes: in.MaxRecordBytes})
	if err != nil {
		return nil, told(u.Settings, err)
	}
	if err := s.Open(ctx, nil); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	t := &files{source: s, sizes: map[stream.Split]int64{}}
	out := &SourceReading{SourceReader: t, Splits: s.Splits(), Bounded: !in.Follow, Grows: in.Follow, Close: s.Close}
	out.Behind = func(at []stream.Position) bool { return slices.ContainsFunc(at, file.Behind) }
	for _, split := range out.Splits {
		info, err := os.Stat(filepath.Join(in.Dir, split.ID))
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		t.sizes[split] = info.Size()
	}
	out.Ended = func(at []stream.Position) (ended []stream.Split) {
		for _, p := range at {
			if size, known := t.sizes[p.Split]; known && !in.Follow && p.Offset >= size {
				ended = append(ended, p.Split)
			}
		}
		return ended
	}
	return out, nil
}

// Read can be called once.
func (t *files) Read(ctx context.Context, to []stream.Position, f func(stream.Split, *stream.Record) error) error {
	ends := map[stream.Split]int64{}
	for _, p := range to {
		if _, known := t.sizes[p.Split]; !known && p.Offset > 0 {
			return fmt.Errorf("the pipeline has read %q, which is not in the directory of its source any more", p.Split.ID)
		}
		ends[p.Split] = p.Offset
	}
	for {
		b, err := t.source.Poll(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case b == nil:
			continue
		}
		for i := range b.Records {
			if b.Records[i].Offset >= ends[b.Split] {
				break
			}
			if err := f(b.Split, &b.Records[i]); err != nil {
				return err
			}
		}
	}
}

// directory reads what manifests name, which is what a reader of whole epochs sees.
type directory struct {
	dir       string
	lines     file.Lines
	manifests []file.Manifest
}

func readFileSink(_ context.Context, _ spec.Env, u Use, dead bool) (*SinkReading, error) {
	var in fileSink
	if dead {
		in.Lines = file.LineRecord
	}
	if err := u.Settings.Decode(&in); err != nil {
		return nil, err
	}
	d := &directory{dir: in.Dir, lines: in.Lines}
	whole := in.Lines == file.LineRecord
	out := &SinkReading{OutputReader: d, Key: whole, Headers: whole, Time: whole, Close: func() error { return nil }}
	var err error
	d.manifests, err = file.ReadManifests(nil, in.Dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return out, nil // nothing was written yet
	}
	return out, err
}

func (d *directory) Read(ctx context.Context, f func(verify.Output) error) error {
	for _, m := range d.manifests {
		for _, p := range m.Files {
			if err := d.readFile(ctx, m, p.Name, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxLine is how long a line may be.
const maxLine = 64 << 20

func (d *directory) readFile(ctx context.Context, m file.Manifest, name string, f func(verify.Output) error) (err error) {
	r, err := os.Open(filepath.Join(d.dir, name))
	if err != nil {
		return fmt.Errorf("the manifest of epoch %d.%d names a file that can't be read: %w", m.Name.Generation, m.Name.N, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		o := verify.Output{Value: lines.Bytes(), Generation: m.Name.Generation, N: m.Name.N, Part: "files", Place: fmt.Sprintf("%s line %d", name, n)}
		if d.lines == file.LineRecord {
			// What is no record is handed on as it stands, and no record of the source explains it.
			if whole, err := file.ParseRecord(o.Value); err == nil {
				o.Key, o.Value, o.Headers, o.Time = whole.Key, whole.Value, whole.Headers, whole.Time
			}
		}
		if err := f(o); err != nil {
			return err
		}
	}
	return lines.Err()
}
