// Command orders-go is the pipeline of orders.yaml beside it, written in Go: the same source, window and
// sinks, the same results, the same name. It is also how a binary with a pipeline of one's own is made:
// it has every command of unisink, and `orders-go run orders` runs what is compiled in.
//
// pipeline.go is what one writes; order.go reads and writes records; main.go is the binary.
package main
