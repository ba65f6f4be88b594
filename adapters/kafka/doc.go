// Package kafka makes Kafka topics a source and a sink of exactly-once pipelines.
//
// A [Sink] is a participant.Resource. Its branches are Kafka transactions that are prepared,
// voted for, and then committed or rolled back by *handle*: by any process, at any later time,
// with the three things that name a transaction for ever (transactional id, producer id, epoch).
// Nothing of the process that wrote the records is needed to finish them.
//
//	Begin -> Write... -> Prepare: flush, witness, describe -> vote with the handle
//	decision -> Commit(handle): EndTxn -> complete, and no partition shows it open -> proof
//
// A commit is proven by what the cluster shows afterwards, not by the answer to EndTxn. An
// answer that could mean both is looked up: in the coordinator's state, then in the witness (an
// offset committed inside the transaction, to a private group), then in the markers in the log.
//
// A [Source] reads topics by manual assignment, read committed; positions live in the
// coordinator's log, and a position that the topic no longer has is an error, never a reset.
//
// [Admin] has the few calls that tools need. DESIGN.md beside this file says why it is built so.
package kafka
