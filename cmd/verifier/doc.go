// Package verifier verifies a pipeline by its specification: it reads the source and the sinks that the
// file names, asks the coordinator how far all is proven, and has package verify compare.
package verifier
