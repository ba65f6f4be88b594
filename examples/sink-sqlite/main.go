package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/unisink/unisink/cmd/app"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return app.Main(ctx, os.Args, app.WithAdapter(adapter()))
}

// adapter is what the binary learns: the sinks of a pipeline's file that say sqlite.
func adapter() app.Adapter {
	return app.Adapter{
		Kind: "sqlite",
		Spec: func(*spec.Document) spec.Adapter {
			return spec.Adapter{
				Kind: "sqlite", SinkSchema: spec.SchemaOf(settings{}), Places: places,
				Sink: func(_ spec.Env, _ string, s spec.Settings) (processor.Sink, error) { return open(s) },
			}
		},
		Finisher: func(_ context.Context, _ spec.Env, s spec.Settings) (participant.Finisher, error) { return open(s) },
	}
}

func open(s spec.Settings) (processor.Sink, error) {
	var in settings
	if err := s.Decode(&in); err != nil {
		return nil, err
	}
	return newSink(in)
}

// places lets two sinks into one table be found as the mistake that they are.
func places(_ spec.Env, _ bool, s spec.Settings) []string {
	var in settings
	if s.Decode(&in) != nil {
		return nil // told where the settings are used
	}
	return []string{"table " + in.Table + " in " + in.Path}
}
