// Package sim runs a whole system in one bubble of virtual time: coordinator nodes, members of
// pipelines, clients that run transactions by hand, their resources, disks and networks, under a
// plan of faults that a seed determines. Afterwards package check judges what was seen.
//
// Everything is in test files, for time is virtual in tests alone: make sim SEEDS=n SEED=first.
package sim
