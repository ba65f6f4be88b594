//go:build never

// Package deps names the modules the tree is built with.
package deps

import (
	_ "github.com/cenkalti/backoff/v5"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/renameio/v2"
	_ "github.com/google/uuid"
	_ "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	_ "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	_ "github.com/hashicorp/go-hclog"
	_ "github.com/hashicorp/go-metrics"
	_ "github.com/hashicorp/go-metrics/compat"
	_ "github.com/hashicorp/raft"
	_ "github.com/hashicorp/raft-boltdb/v2"
	_ "github.com/jedib0t/go-pretty/v6/table"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/knadh/koanf/v2"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/twmb/franz-go/pkg/kadm"
	_ "github.com/twmb/franz-go/pkg/kfake"
	_ "github.com/twmb/franz-go/pkg/kgo"
	_ "github.com/twmb/franz-go/pkg/kmsg"
	_ "github.com/urfave/cli/v2"
	_ "go.etcd.io/bbolt"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/term"
	_ "google.golang.org/genproto/googleapis/api/annotations"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "google.golang.org/grpc"
	_ "google.golang.org/grpc/health"
	_ "google.golang.org/protobuf/proto"
	_ "pgregory.net/rapid"
)
