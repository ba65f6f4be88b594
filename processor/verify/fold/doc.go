// Package fold computes again what the aggregates of a window come to, and judges results by the rule of each:
// exactly, within what rounding can do, or within the error that an aggregate states of itself.
package fold
