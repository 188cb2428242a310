package main

import (
	"math"
	"slices"
)

// summary describes a set of times, in seconds.
type summary struct {
	Count int     `json:"count"`
	Min   float64 `json:"min"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// ratio compares two summaries, percentile by percentile.
type ratio struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// Values of a sample.
func total(s sample) float64  { return s.Seconds }
func start(s sample) float64  { return s.StartSeconds }
func result(s sample) float64 { return s.ResultSeconds }

// summarize takes one value of the samples of one kind.
func summarize(samples []sample, kind string, value func(sample) float64) summary {
	var values []float64
	for _, s := range samples {
		if s.Kind == kind {
			values = append(values, value(s))
		}
	}
	if len(values) == 0 {
		return summary{}
	}
	slices.Sort(values)
	return summary{
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

func (s summary) over(base summary) ratio {
	return ratio{P50: s.P50 / base.P50, P90: s.P90 / base.P90, P99: s.P99 / base.P99}
}
