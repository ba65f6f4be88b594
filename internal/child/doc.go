// Package child starts processes that do not outlive the one that started them.
//
// On Linux the kernel kills a child when its parent dies in whatever way, kill -9 included.
// Elsewhere a child ends with [Crew.End] alone. Every child leads a process group of its own,
// so that Ctrl-C in a terminal reaches the parent only, which then ends its children in order.
package child
