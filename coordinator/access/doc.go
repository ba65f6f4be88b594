// Package access says who calls a node, what they may do, and whose act the log is told that something
// was. Callers are known by their certificates; what each method takes is one table, and a method that is
// not in it is called by nobody. Without certificates nobody is known, and nothing is denied.
package access
