// Package app is the unisink command line, importable: whoever adds an adapter or compiles in a
// pipeline builds a binary of their own with Main and options. Commands are a noun, then a verb;
// a flag wins over its environment variable, which wins over the default. Exit codes tell
// scripts what kind of failure it was (see Code).
package app
