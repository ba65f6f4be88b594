// Command torture runs a pipeline on a real broker and kills whatever can be killed, for as long as
// it is told to: the pipeline at every fault point in turn and at moments of the protocol, the
// broker, the coordinator's leader. Then it lets everything drain and looks from outside whether the
// outputs are what the input says, and whether anything is left open.
//
//	go run ./tests/jepsen-style/torture -minutes 10
//
// The order of what is done is drawn from a seed, which is printed and can be given again; real
// processes on a real machine do not repeat their timing, so neither does a run.
//
// It exits with 0 only if the verdict is clean and enough was done. What counts as done is read from
// the logs of nodes and pipeline, never from what was intended. README.md says how to read a report.
package main
