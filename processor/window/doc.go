// Package window says which window a record belongs to, how far event time has come, and what is
// due or late. It is pure: no clock, no I/O, no goroutine; time and idleness arrive as arguments.
package window
