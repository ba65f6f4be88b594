// Command sink-http is a unisink of one's own: it knows, beside Kafka and directories, a sink of its
// own, a shop behind HTTP with three calls: reserve, confirm and cancel. adapter.go is all there is
// to write for that; docs/adapters.md tells the way to it. `sink-http shop` is a shop to try it on.
package main
