package measure

import (
	"math"
	"slices"
)

// Summary describes a set of values.
type Summary struct {
	Count int     `json:"count"`
	Min   float64 `json:"min"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Summarize describes the values; it leaves their order as it is.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	values = slices.Sorted(slices.Values(values))
	return Summary{
		Count: len(values), Min: values[0], Max: values[len(values)-1],
		P50: percentile(values, 50), P90: percentile(values, 90), P99: percentile(values, 99),
	}
}

// percentile is the smallest value that at least p in a hundred are not above (nearest rank): always one that
// was measured. values is sorted and not empty.
func percentile(values []float64, p float64) float64 {
	rank := int(math.Ceil(p / 100 * float64(len(values))))
	return values[max(rank, 1)-1]
}
