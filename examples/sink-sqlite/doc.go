// Command sink-sqlite is a unisink of one's own, in a module of its own: it knows, beside Kafka and
// directories, tables in an SQLite database. adapter.go is the full contract of a resource in less
// than 200 lines; docs/adapters.md tells the way to it.
package main
