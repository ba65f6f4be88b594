// Package fleet is the load on a coordinator group that is measured without brokers: members of scopes whose one
// resource is a few bytes of memory, and callers who run transactions by hand. Each notes every decision that it
// was told, and every time that it had to begin again.
package fleet
