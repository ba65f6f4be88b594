package raftnode

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes the library's log on. Its errors heal by themselves (an unreachable peer, a
// lost election), so they are warnings here; what needs a person ends the process instead.
func raftLogger(log *slog.Logger) hclog.Logger {
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	logger.RegisterSink(slogSink{log: log.With(slog.String("from", "raft"))})
	return logger
}

type slogSink struct{ log *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch {
	case level >= hclog.Warn:
		to = slog.LevelWarn
	case level < hclog.Info:
		return
	}
	ctx := context.Background()
	if !s.log.Enabled(ctx, to) {
		return
	}
	attrs := make([]slog.Attr, 0, len(args)/2+1)
	attrs = append(attrs, slog.String("said", msg))
	for i := 0; i+1 < len(args); i += 2 {
		attrs = append(attrs, slog.String(fmt.Sprint(args[i]), printed(args[i+1])))
	}
	s.log.LogAttrs(ctx, to, "raft", attrs...)
}

// printed renders one value of the library's log the way the library means it.
func printed(v any) string {
	if f, ok := v.(hclog.Format); ok && len(f) > 0 {
		return fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
	}
	return fmt.Sprint(v)
}
