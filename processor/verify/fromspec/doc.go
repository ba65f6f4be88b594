// Package fromspec makes of what a specification says a description that package verify can judge by. It
// shares nothing with the pipeline that runs: expressions are evaluated by CEL's own interpreter, records
// are read as a whole, and what a sink must hold is computed here again.
package fromspec
