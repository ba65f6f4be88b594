// Package certs keeps certificates, keys, authorities and what else stands in small files up to date
// with those files while a process runs: they are read again when a connection is made, at most once
// a second, so that whoever renews them has nothing else to do. Files that are broken, half written or
// do not belong together change nothing: what was read last stays in use, and the log says why.
package certs
