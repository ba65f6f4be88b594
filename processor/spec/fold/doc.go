// Package fold holds several aggregates of a specification side by side in one accumulator: a record
// reaches all of them, or none.
//
// The aggregates are those of processor/aggregate. Integers, which most records have, are added up without
// them and handed over with the first number that is none.
package fold
