package apiclock

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// FuzzMajority reads bounds from the input. Whatever value more than half of them hold, their medians hold it too, and
// they don't cross.
func FuzzMajority(f *testing.F) {
	f.Add([]byte{1, 0, 2, 0, 1, 0, 3, 0, 200, 1, 0, 0})
	f.Add([]byte{0, 0, 9, 0, 5, 0, 9, 0, 9, 0, 9, 0, 100, 0, 0, 0, 100, 0, 0, 0})
	f.Fuzz(func(t *testing.T, input []byte) {
		var observations []bounds
		for ; len(input) >= 4; input = input[4:] {
			least := time.Duration(int16(binary.LittleEndian.Uint16(input)))
			observations = append(observations, bounds{least, least + time.Duration(binary.LittleEndian.Uint16(input[2:]))})
		}
		if len(observations) == 0 {
			return
		}
		got := medians(observations)
		if got.least > got.most {
			t.Fatalf("medians of %v: %v", observations, got)
		}
		// A majority's values, if there are any, begin at a lower bound and end at an upper one.
		for _, b := range observations {
			for _, value := range []time.Duration{b.least, b.most} {
				held := 0
				for _, other := range observations {
					if other.least <= value && value <= other.most {
						held++
					}
				}
				if 2*held > len(observations) && got.nearest(value) != value {
					t.Fatalf("medians of %v: %v, though %d observations hold %d", observations, got, held, value)
				}
			}
		}
	})
}

func TestTheWindowKeepsTheNewestAnswers(t *testing.T) {
	t.Parallel()
	var w window
	for n := range windowSize + 10 {
		w.add(bounds{time.Duration(n), time.Duration(n)})
	}
	var kept []time.Duration
	for _, b := range w.answers {
		kept = append(kept, b.least)
	}
	if len(kept) != windowSize || slices.Min(kept) != 10 || slices.Max(kept) != windowSize+9 {
		t.Errorf("kept %d from %d to %d", len(kept), slices.Min(kept), slices.Max(kept))
	}
}

func TestAbsurdAnswersDontOverflow(t *testing.T) {
	t.Parallel()
	var w window
	for _, date := range []time.Time{{}, time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		w.add(bounds{date.Sub(now), date.Add(granularity).Sub(now)})
	}
	if got := w.spread(); got != 2*furthest {
		t.Errorf("spread %s", got)
	}
}
