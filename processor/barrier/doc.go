// Package barrier aligns barriers over the inputs of a stage, and injects them at its sources. It is
// pure: the caller moves records and barriers, this package says what may move. Stages that run in
// one process need neither: their barrier is a place between two batches.
package barrier
