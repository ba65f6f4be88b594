// Package verify recomputes from a pipeline's source what its sinks must hold, with an evaluator of
// its own that shares nothing with the pipeline's windows, state and aggregates, and compares.
//
// A [Job] describes the pipeline in plain functions; [Run] is the short form for tumbling windows over flat
// JSON objects, and package fromspec makes a job of a specification. Every record of the source must be in
// exactly one of: windows, late output, dead letters, what passed through, filtered out, skipped.
//
// It judges up to a cut: how far every split was read for the last proven epoch. Windows that had not
// fired by then are not missing, and outputs of later epochs are not looked at. Where something cannot be
// known from outside it says so, and never "clean". Why what it says can be said stands in DESIGN.md.
//
// # What is late
//
// A window fires when the pipeline's watermark, the least of its splits' watermarks, reaches the
// window's end, and is closed when allowed lateness has passed as well; a record that comes later is late. In
// which order the records of different splits came cannot be seen from outside. But the combined watermark
// never was higher than the record's own split's, which is the largest event time before it in that split,
// minus the disorder, and so is known. Hence a record whose window closes after its own split's watermark was
// on time whatever the order. The others are late for certain when there is one split; with more they may be.
//
// With a late output nothing needs to be concluded: a record is late if it is there. It is checked that it
// can have been late, and that it is not in its window as well.
//
// # What cannot be known
//
//   - Without a late output, and with several splits: whether a record that may have been late was. Every
//     choice is tried; a result that none explains is broken, one that some choice explains is undeterminable.
//   - A session out of several splits that an early end of a part may have cut in two: only that its parts
//     hold its records together is checked.
//   - Of the results that are sent again with allowed lateness the last is compared in full. Of those
//     before it is checked that the first says so, how many there can be, and that each counts one record
//     more than the one before. Without a count, and with several splits, their number is undeterminable.
//   - With idle splits allowed and no late output: a split that was silent for long does not hold the
//     watermark back, so what is missing may have been late.
//   - In which order records were added, where that decides which of them an aggregate refuses: a sum beyond 64
//     bits, decimals among floats, too many different values.
//   - The order of records in a sink.
package verify
