// Package coordinator is one node of the replicated coordinator: it keeps the log of
// decisions. New builds the packages below it, Run starts them and stops them in order.
package coordinator
