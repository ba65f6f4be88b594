package adapters

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/unisink/unisink/adapters/file"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec"
)

type fileSource struct {
	Dir            string        `yaml:"dir,required" doc:"Directory that is read: its .jsonl files in order of their names, or whole epochs where a file sink wrote it."`
	Lines          file.Lines    `yaml:"lines" doc:"What a line holds: the value of a record (default), or the whole record as a file sink writes dead letters." enum:"value,record"`
	Follow         bool          `yaml:"follow" doc:"Wait for more files; by default the source ends after those that were there."`
	PollEvery      time.Duration `yaml:"poll_every" doc:"How often new files are looked for; default 200ms."`
	BatchRecords   int           `yaml:"batch_records" doc:"The most records that are read at once; default 1024."`
	MaxRecordBytes int           `yaml:"max_record_bytes" doc:"The longest line; default 1 MiB."`
}

type fileSink struct {
	Dir          string     `yaml:"dir,required" doc:"Directory that is written; made if missing."`
	Lines        file.Lines `yaml:"lines" doc:"What a line holds: the value of a record, or the whole record with its key, headers and timestamp. Default record for dead letters, else value." enum:"value,record"`
	MaxFileBytes int64      `yaml:"max_file_bytes" doc:"A file that is larger is closed and the next begun; default 128 MiB."`
}

// File is the adapter of directories.
func File() Adapter {
	return Adapter{Kind: file.Kind, Check: checkFiles, Finisher: finishFile, Reading: fileReading(), Spec: func(doc *spec.Document) spec.Adapter {
		return spec.Adapter{
			Kind: file.Kind, SourceSchema: spec.SchemaOf(fileSource{}), SinkSchema: spec.SchemaOf(fileSink{}), Places: filePlaces,
			Source: func(_ spec.Env, name string, s spec.Settings) (processor.Source, error) {
				return newFileSource(name, s, needsTimes(doc))
			},
			Sink: func(e spec.Env, name string, s spec.Settings) (processor.Sink, error) {
				return newFileSink(e, s, takes(doc, name) == spec.UseDeadLetter)
			},
		}
	}}
}

// takes says what a sink of a document takes; "" where there is no such sink, or no document.
func takes(doc *spec.Document, name string) spec.Use {
	if doc == nil {
		return ""
	}
	for i := range doc.Sinks {
		if doc.Sinks[i].Name.Value == name {
			return doc.Use(i)
		}
	}
	return ""
}

// needsTimes: the windows of a specification go by the timestamps that the source gives.
func needsTimes(doc *spec.Document) bool {
	return doc != nil && doc.Window != nil && doc.Source.EventTime.Value == ""
}

func newFileSource(name string, s spec.Settings, timed bool) (processor.Source, error) {
	var in fileSource
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	if timed && in.Lines != file.LineRecord {
		return nil, s.Mistake("", "a line that is a value alone has no timestamp, and the window needs one: say which field it is, for example event_time: rec.at")
	}
	out, err := file.NewSource(file.SourceConfig{
		Name: name, Dir: in.Dir, Lines: in.Lines, Follow: in.Follow, PollEvery: in.PollEvery, BatchRecords: in.BatchRecords, MaxRecordBytes: in.MaxRecordBytes,
	})
	if err != nil {
		return nil, told(s, err)
	}
	return out, nil
}

func newFileSink(e spec.Env, s spec.Settings, dead bool) (processor.Sink, error) {
	var in fileSink
	if dead {
		in.Lines = file.LineRecord // a dead letter is kept whatever it is
	}
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	out, err := file.NewSink(file.SinkConfig{Dir: in.Dir, Lines: in.Lines, MaxFileBytes: in.MaxFileBytes, Logger: e.Logger})
	if err != nil {
		return nil, told(s, err)
	}
	return out, nil
}

// checkFiles looks for what is no directory, and for a source's that is missing.
func checkFiles(_ context.Context, _ spec.Env, uses []Use) error {
	for _, u := range uses {
		dir, err := dirOf(u)
		if err != nil {
			return err
		}
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && u.Source:
			return &marked{ErrNotFound, u.Settings.Mistake("dir", "the directory %s, which source %q reads, does not exist", dir, u.Name)}
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return u.Settings.Mistake("dir", "%s cannot be looked at: %s", dir, err)
		case !info.IsDir():
			return u.Settings.Mistake("dir", "%s is a file, and %q needs a directory", dir, u.Name)
		}
	}
	return nil
}

func filePlaces(_ spec.Env, source bool, s spec.Settings) []string {
	dir, err := dirOf(Use{Source: source, Settings: s})
	if err != nil {
		return nil // told where the settings are used
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil
	}
	return []string{"directory " + dir}
}

func dirOf(u Use) (string, error) {
	if u.Source {
		var in fileSource
		err := u.Settings.Decode(&in)
		return in.Dir, err
	}
	var in fileSink
	err := u.Settings.Decode(&in)
	return in.Dir, err
}
