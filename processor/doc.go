// Package processor runs pipelines: source, window, sinks, exactly once, as a member of a scope.
//
// A pipeline is built from typed functions:
//
//	orders := processor.From("orders", source, decode).EventTime(at).Where(paid).Key(customer)
//	totals := processor.Tumbling(orders, time.Second, aggregate.Sum(amount))
//	p, err := totals.To("topic", topic, encode).To("files", files, encode).Pipeline("totals")
//	err = p.Run(ctx, processor.RunConfig{Coordinators: addrs})
//
// Windows are tumbling, sliding or sessions. A stream that needs no window goes through [PassThrough] instead.
//
// Every result of every window reaches all sinks in one decision: the epoch in which the watermark
// passed the window's end. What a window owes is state, so a crash neither loses nor repeats it.
//
// Every record is accounted for once: in windows, late ([Windowed.AllowedLateness], [Windowed.Late]), filtered, passed on,
// or bad: then it halts the scope, is skipped ([Stream.SkipBad]) or goes to dead letters ([Stream.DeadLetters]).
// [Counters] say how many.
package processor
