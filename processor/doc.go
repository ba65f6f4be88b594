// Package processor runs pipelines: source, window, sinks, exactly once, as a member of a scope.
package processor
