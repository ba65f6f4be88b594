// Package coordinator is one node of the replicated coordinator: it owns the epochs and
// commit log. New builds the packages below it, Run starts them and stops them in order.
package coordinator
