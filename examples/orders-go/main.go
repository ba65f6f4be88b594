package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/unisink/unisink/cmd/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Main(ctx, os.Args, app.WithPipeline(app.Pipeline{
		Name: "orders", Text: "orders, summed by customer over 1 s windows, written in Go", Run: run,
	}))
	stop()
	os.Exit(code)
}

// run builds the pipeline and runs it until it is stopped.
func run(ctx context.Context, rc app.RunContext) error {
	p, err := pipeline(configFromEnv(), rc.Logger)
	if err != nil {
		return err
	}
	return app.RunPipeline(ctx, rc, p, time.Second)
}

// config says where the pipeline reads and writes.
type config struct {
	brokers, from, to string
	dir, bad, late    string
	state             string
}

// configFromEnv reads the variables that orders.yaml names.
func configFromEnv() config {
	return config{
		brokers: env("UNISINK_BROKERS", "127.0.0.1:9092"), from: env("ORDERS_FROM", "orders"), to: env("ORDERS_TO", "order-totals"),
		dir: env("ORDERS_DIR", "order-totals"), bad: env("ORDERS_BAD", "orders-bad"), late: env("ORDERS_LATE", "orders-late"),
		state: env("UNISINK_STATE", ""),
	}
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
