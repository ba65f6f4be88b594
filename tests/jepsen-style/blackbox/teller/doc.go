// Package teller is a worker process of the black-box harness: it transfers money by hand between the
// accounts and the files, asks about transactions of others, and, as a sweeper, finishes what killed
// tellers have left. It is killed and paused at any time, and knows nothing of its former lives.
//
// Every call is written down in the house before it is made, and its answer when it is there.
package teller
