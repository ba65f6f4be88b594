// Package examples holds pipelines that are written down in YAML, for binaries that carry one.
package examples

import _ "embed" // for the files

// Orders is orders.yaml, the pipeline that the demo shows.
//
//go:embed orders.yaml
var Orders []byte
