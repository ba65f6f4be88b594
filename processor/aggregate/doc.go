// Package aggregate folds the records of one key in one window into a result.
//
//	totals := processor.Tumbling(orders, time.Second, aggregate.Sum(func(o *Order) int64 { return o.Cents }))
//
// Whatever has the methods of [Of] is an aggregate, also outside this package. What goes for all of these:
//
//   - A record that cannot be added is an error, and the accumulator is as it was before. Nothing is
//     rounded, cut or dropped in silence. [ErrOverflow], [ErrNotFinite], [ErrMixed] and [ErrTooMany] say which.
//   - Merge gives what adding the other's records after one's own would have given.
//   - An encoding depends on the records and their order alone, and is the same on all machines.
//   - No method is safe for concurrent use. Memory of an accumulator that came with a result is good
//     until encode returns.
//
// # Numbers
//
// Integers are int64 and stay integers: [Count], [Sum], [Min], [Max], [Avg], [Summarize].
//
// Floats are float64: [SumFloat], [MinFloat], [MaxFloat], [AvgFloat]. NaN and the infinities are
// refused, record by record. A sum is the exact one, rounded once when it is read, so it does not depend
// on the order of the records.
//
// Decimals are exact: [number.Decimal], [SumDecimal], [MinDecimal], [MaxDecimal], [AvgDecimal]. They have up to 38 digits.
//
// Where the kind is known at run time only, a [number.Number] is one of the three: [SumNumber], [MinNumber],
// [MaxNumber], [AvgNumber]. Integers with integers stay integers; integers with floats make floats, still
// exact until read; integers with decimals make decimals. Decimals with floats are refused, since
// one of the two would have to lose what it is for; so is no number, with [number.ErrNone].
package aggregate
