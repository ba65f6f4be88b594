package file

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/unisink/unisink/internal/crashfs"
	"github.com/unisink/unisink/participant"
)

// Kind is what handles and descriptions of this adapter say.
const Kind = "file"

// SinkConfig of a sink. Zero values take the defaults.
type SinkConfig struct {
	// Dir is the target directory; made if missing.
	Dir string
	// MaxFileBytes closes a file and begins the next once it is larger; default 128 MiB.
	MaxFileBytes int64
	// Lines says what of a record is written; default LineValue.
	Lines Lines
	// FS replaces the disk in tests.
	FS crashfs.FS
	// Logger; default discards.
	Logger *slog.Logger
}

const (
	defaultMaxFile = 128 << 20
	bufferBytes    = 64 << 10
	extension      = ".jsonl"
)

// Validate names every mistake at once.
func (c SinkConfig) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("the directory is not set"))
	}
	if c.MaxFileBytes < 0 {
		errs = append(errs, fmt.Errorf("a largest file of %d bytes is not possible", c.MaxFileBytes))
	}
	if err := c.Lines.check(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("file sink: %w: %w", participant.ErrMisconfigured, err)
	}
	return nil
}

func (c SinkConfig) withDefaults() SinkConfig {
	if c.MaxFileBytes == 0 {
		c.MaxFileBytes = defaultMaxFile
	}
	if c.FS == nil {
		c.FS = crashfs.OS()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Dir = filepath.Clean(c.Dir)
	return c
}
