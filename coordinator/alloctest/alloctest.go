// Package alloctest counts the bytes that calls allocate, for tests which show that a cost does not grow.
package alloctest

import "runtime"

// Slack is about what the rest of the program allocates meanwhile, bytes.
const Slack = 16 << 10

// Bytes is how many bytes were allocated while f ran, by whomever.
func Bytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Least is the fewest Bytes of five runs of f: others allocate meanwhile.
func Least(f func()) uint64 {
	least := Bytes(f)
	for range 4 {
		least = min(least, Bytes(f))
	}
	return least
}
