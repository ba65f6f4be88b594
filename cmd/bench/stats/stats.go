package stats

import (
	"math"
	"slices"
	"time"
)

// Quantile is the value that a share of the values does not exceed; NaN of none. It sorts values.
func Quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[min(int(share*float64(len(values))), len(values)-1)]
}

// Median of a few values; of two it is their mean, of none NaN.
func Median(values []float64) float64 {
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

// Rounded to so many digits behind the point.
func Rounded(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}

// MiddleAndEnd are the median and the 99th percentile, rounded to hundredths; zero of none. Values stay as they are.
func MiddleAndEnd(values []float64) (p50, p99 float64) {
	if len(values) == 0 {
		return 0, 0
	}
	values = slices.Clone(values)
	return Rounded(Median(values), 2), Rounded(Quantile(values, 0.99), 2)
}

// Milliseconds of a duration, with its microseconds.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
