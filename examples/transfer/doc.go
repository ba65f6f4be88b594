// Command transfer moves money between accounts, each of which is a directory of its own: two
// resources that know nothing of each other change together or not at all, by a transaction that the
// program runs by hand. There is no pipeline.
//
// bank.go is the whole of it: how real resources are opened by hand, how a transaction is run, and
// how what a killed process has left is swept. README.md goes through it on the command line.
package main
