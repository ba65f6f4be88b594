package verify

import "github.com/unisink/unisink/processor/verify/fold"

// What folds are is package fold's affair; these are its names for whoever describes a pipeline.
type (
	// Aggregate is what a field of a result holds.
	Aggregate = fold.Aggregate
	// Fold is an aggregate with its settings.
	Fold = fold.Fold
	// Absent is a value that a fold leaves out.
	Absent = fold.Absent
	// Refused is a value that a fold cannot take, and why.
	Refused = fold.Refused
)

// The aggregates that can be recomputed.
const (
	Count          = fold.Count
	Sum            = fold.Sum
	Min            = fold.Min
	Max            = fold.Max
	Avg            = fold.Avg
	Distinct       = fold.Distinct
	ApproxDistinct = fold.ApproxDistinct
	Quantile       = fold.Quantile
	First          = fold.First
	Last           = fold.Last
	TopK           = fold.TopK
)
