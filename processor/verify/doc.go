// Package verify recomputes from a pipeline's source what its sinks must hold, with an evaluator of
// its own that shares nothing with the pipeline's windows and state, and compares.
//
// It judges up to a cut: how far every split was read for the last proven epoch. Windows that had not
// fired by then are not missing. Where something cannot be known from outside it says so, and never
// "clean".
//
// # What is late
//
// A window fires when the pipeline's watermark, the least of its splits' watermarks, reaches the
// window's end; a record that comes later is dropped from it. In which order the records of
// different splits came cannot be seen from outside. But the combined watermark never was higher than the record's own
// split's, which is the largest event time before it in that split, minus the disorder, and so is
// known. Hence a record whose window ends after its own split's watermark was on time whatever
// the order. The others are late for certain when there is one split; with more they may be, and
// their windows are undeterminable.
//
// With idle splits allowed that rule does not hold: a split that was silent for long does not hold
// the watermark back. Then a window that lacks something may have lost it or may have been right to
// drop it, and is undeterminable. Pipelines that are to be verified strictly set no idle time.
package verify
