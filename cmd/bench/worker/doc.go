// Package worker is the process that is measured: a pipeline in Go, the same written down, and the same
// work as a loop by hand, each with the few clocks and counters that are read when it ends. What it does and
// says is checked by whoever started it.
package worker
