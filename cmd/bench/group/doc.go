// Package group runs coordinator nodes as processes, to measure them from outside: it starts, finds, kills and
// restarts them, and reads what the kernel knows of them.
package group
