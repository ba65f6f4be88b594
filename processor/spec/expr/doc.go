// Package expr compiles the expressions of a specification, which are CEL, and evaluates them over
// records and results.
//
// Most expressions are a field, a comparison, a concatenation: these become Go closures over the few
// fields of a record that are read at all, and allocate nothing. All others are run by the CEL library
// within a limit of cost. Which it is cannot be seen from outside: results and whether there is an
// error are the same, and the tests hold the two against each other.
package expr
