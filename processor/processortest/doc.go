// Package processortest holds what tests of pipelines, sources and sinks need: a scripted source, a
// recording sink, and a scope in memory that keeps the contract of participant.Run, decides epochs
// when it is told to, and forgets what was not decided.
package processortest
