// Package pairs puts transactions over two PostgreSQL databases beside the bare pairs of PREPARE TRANSACTION and
// COMMIT PREPARED that pgbench makes on the same server, in the same run.
package pairs
