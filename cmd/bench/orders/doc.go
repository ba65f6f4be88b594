// Package orders is the input of measurements of state, and the results that it must make: both follow from the
// number of an order alone, so that nothing has to be remembered to check them.
package orders
