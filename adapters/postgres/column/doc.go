// Package column says what of a record stands in which column of a table, and writes it as the texts that
// PostgreSQL reads. It does no I/O: what a table is made of is told to it.
//
// A value either fits, or its record is refused by name of the column: nothing is rounded, cut or replaced on the
// way. (Floating-point columns hold what such a number can hold, and times are microseconds, as everywhere in PostgreSQL.)
package column
