//go:build never

// Package deps names modules that go.mod keeps although nothing imports them yet. It is never built; a
// line goes when the first package imports its module, and the package with its last line.
package deps

import (
	_ "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	_ "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	_ "github.com/hashicorp/go-metrics"
	_ "github.com/knadh/koanf/v2"
	_ "google.golang.org/genproto/googleapis/api/annotations"
)
