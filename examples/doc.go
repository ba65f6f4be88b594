// Package examples holds pipelines that are written down in YAML, for binaries that carry one.
package examples

import _ "embed" // for the files

// Orders is orders.yaml, the pipeline that the demo shows.
//
//go:embed orders.yaml
var Orders []byte

// OrdersAll is orders-all.yaml: the same into a topic, a PostgreSQL table and a directory.
//
//go:embed orders-all.yaml
var OrdersAll []byte

// OrdersAllTable is orders-all.sql, which makes its table.
//
//go:embed orders-all.sql
var OrdersAllTable string

// OrdersAllReach is orders-all-resolver.yaml, what a resolver of it reaches.
//
//go:embed orders-all-resolver.yaml
var OrdersAllReach []byte
