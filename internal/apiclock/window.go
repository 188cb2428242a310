package apiclock

import (
	"slices"
	"time"
)

// Sizes of the window.
const (
	// windowSize is so large that a third of wrong answers, spread at random, doesn't become a majority by chance.
	windowSize = 255
	// spacing is the least time between two observations, startSpacing that of the first startCount, immediateCount how
	// many are taken without.
	spacing        = time.Second
	startSpacing   = 100 * time.Millisecond
	startCount     = 16
	immediateCount = 2
)

// furthest bounds the differences, so that sums of them don't overflow.
const furthest = 50 * 365 * 24 * time.Hour

// bounds are the least and the greatest difference that fit an observation.
type bounds struct{ least, most time.Duration }

// nearest is the difference within the bounds that is nearest to another one.
func (b bounds) nearest(offset time.Duration) time.Duration { return min(max(offset, b.least), b.most) }

// window holds the newest observations.
type window struct {
	// answers is a ring once it is full.
	answers []bounds
	oldest  int
}

func (w *window) add(b bounds) {
	all := bounds{-furthest, furthest}
	b = bounds{all.nearest(b.least), all.nearest(b.most)}
	if len(w.answers) < windowSize {
		w.answers = append(w.answers, b)
		return
	}
	w.answers[w.oldest] = b
	w.oldest = (w.oldest + 1) % windowSize
}

// spacing is how long after the newest observation the next one may be made.
func (w *window) spacing() time.Duration {
	switch {
	case len(w.answers) < immediateCount:
		return 0
	case len(w.answers) < startCount:
		return startSpacing
	default:
		return spacing
	}
}

// majority are bounds that hold the difference if more than half of the observations do: the medians of their bounds.
func (w *window) majority() bounds {
	observations := slices.Clone(w.answers)
	if len(observations) < windowSize {
		// The own wall clock says that there is no difference.
		observations = append(observations, bounds{})
	}
	return medians(observations)
}

// medians are the median of the lower bounds and that of the upper ones. If more than half of the observations hold a
// value, half of the lower bounds or more aren't above it, and half of the upper ones or more aren't below it. Of an
// even number the outer ones of the two in the middle are taken.
func medians(observations []bounds) bounds {
	least, most := make([]time.Duration, len(observations)), make([]time.Duration, len(observations))
	for i, b := range observations {
		least[i], most[i] = b.least, b.most
	}
	slices.Sort(least)
	slices.Sort(most)
	return bounds{least[(len(least)-1)/2], most[len(most)/2]}
}

// spread is by how much the two answers contradict each other that do so most.
func (w *window) spread() time.Duration {
	if len(w.answers) == 0 {
		return 0
	}
	highest, lowest := w.answers[0].least, w.answers[0].most
	for _, b := range w.answers {
		highest, lowest = max(highest, b.least), min(lowest, b.most)
	}
	return max(0, highest-lowest)
}
