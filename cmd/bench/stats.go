package bench

import (
	"math"
	"slices"
)

// quantile is the value that a share of the values does not exceed; NaN of none. It sorts values.
func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[min(int(share*float64(len(values))), len(values)-1)]
}

// median of a few values; of two it is their mean.
func median(values []float64) float64 {
	v := slices.Clone(values)
	slices.Sort(v)
	switch n := len(v); {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}
