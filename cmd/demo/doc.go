// Package demo runs a whole group on one machine, for people to watch: three coordinator nodes, an
// embedded broker and an exactly-once pipeline, each a process of its own, some of which it kills
// where it hurts. What it shows is read from the public API, what it counts from the logs.
package demo
