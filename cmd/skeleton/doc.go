// Package skeleton lays the files of a new adapter: a module of its own that keeps everything in memory,
// passes the conformance kit as it is, and is made real piece by piece.
package skeleton
