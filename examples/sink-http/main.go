package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/unisink/unisink/cmd/app"
	"github.com/unisink/unisink/examples/sink-http/service"
	"github.com/unisink/unisink/participant"
	"github.com/unisink/unisink/processor"
	"github.com/unisink/unisink/processor/spec"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == "shop" {
		return sell(ctx, os.Args[2])
	}
	return app.Main(ctx, os.Args, app.WithAdapter(adapter()))
}

// adapter is what the binary learns: the sinks of a pipeline's file that say shop.
func adapter() app.Adapter {
	return app.Adapter{
		Kind: "shop",
		Spec: func(*spec.Document) spec.Adapter {
			return spec.Adapter{
				Kind: "shop", SinkSchema: spec.SchemaOf(settings{}),
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

// sell is a shop to try it on, until ctx ends. It remembers nothing then.
func sell(ctx context.Context, addr string) int {
	server := &http.Server{Addr: addr, Handler: service.New(), ReadHeaderTimeout: time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // ends ListenAndServe
	if err := server.ListenAndServe(); ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "sink-http: the shop cannot be opened: %s\n", err)
		return 1
	}
	return 0
}
