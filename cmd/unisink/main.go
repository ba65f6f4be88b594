// Command unisink is the coordinator, its tools and the demo's pipeline in one binary.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/unisink/unisink/cmd/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Main(ctx, os.Args, app.WithPipeline(app.OrdersPipeline()))
	stop()
	os.Exit(code)
}
