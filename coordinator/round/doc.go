// Package round is the leader's volatile half of an epoch: who has voted. One [Machine] runs the
// epochs of one generation of one scope, from barrier to decision: votes and time go in, orders
// come out. It is a pure function of the events it was given: no clock, no goroutine, no I/O, and
// the same events give the same orders. It forgets everything with its leader; the next leader's
// machine is rebuilt from the log ([Config]) and from what members say when they re-attach
// ([Standing]).
//
// One epoch:
//
//	          work, interval passed, room          all votes in, n-1 applied,
//	          or final wanted                      deadlines > commit budget
//	(nothing) ----------------------> collecting ---------------------------> proposed
//	    |                               |   ^  |                               |   |
//	    | a member has seen it,         |   |  | no, lost, prepare timeout,    |   | entry applied
//	    | or votes for it (new leader)  |   |  | deadline too near             |   v
//	    +-------------------------------+   |  v                               | decided
//	                                        | closing --> closed               |
//	                                        +----------------------------------+
//	                                          proposal failed or unknown
//
// Closing ends every epoch that is not decided; the applied close is the end of the machine. The
// machine never orders a rollback: whoever applied the close does, with the final number of it.
package round
