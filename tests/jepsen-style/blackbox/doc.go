// Command blackbox runs a coordinator group, tellers and two pipelines as processes, breaks networks, disks and
// processes under them for minutes or hours, writes every call down, and judges what it saw from outside.
//
//	go run ./tests/jepsen-style/blackbox -minutes 3 -seed 7
//
// README.md of tests/jepsen-style says what it does and how to read its report, DESIGN.md why.
package main
