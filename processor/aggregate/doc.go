// Package aggregate folds the records of one key in one window into a result: count, sum, least, largest, mean.
//
// Whatever has the methods of [Of] is an aggregate, also outside this package.
package aggregate
