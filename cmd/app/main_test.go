package app_test

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/unisink/unisink/cmd/app"
	"github.com/unisink/unisink/internal/services/servicestest"
)

var update = flag.Bool("update", false, "rewrite golden output from what the commands print")

// TestMain makes this test binary the unisink command too: it stands in PATH under that name, for
// scripts and for tests that start processes.
func TestMain(m *testing.M) {
	testscript.Main(servicestest.Main(m), map[string]func(){"unisink": unisink})
}

func unisink() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Main(ctx, os.Args, app.WithPipeline(app.OrdersPipeline()))
	stop()
	os.Exit(code)
}
