// Package postgres makes a PostgreSQL database a sink of pipelines and a participant of transactions
// run by hand. A branch is one database transaction of one member on one database, whatever number of
// tables it writes to. Its marker, a row in unisink.commits, is written by the transaction itself and
// proves its commit.
//
// In mode Prepared, the default, a branch is a prepared transaction: rows and marker in one PREPARE
// TRANSACTION, finished by COMMIT PREPARED from any connection to the same database. In mode Staged
// rows go durably to a staging table first, and one short local transaction moves them and writes the
// marker: for servers without prepared transactions, and where their locks may not be held.
//
// What a branch is called in the server's list of prepared transactions is its name:
// namespace.pipeline.shard.member.resource.generation.n.
package postgres
