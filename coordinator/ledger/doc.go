// Package ledger is the fenced record of decisions: a pure function from (state, command) to
// (state, result, effects). It has no clock, no I/O, no goroutine and no map iteration order.
package ledger
