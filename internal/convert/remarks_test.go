package convert

import (
	"fmt"
	"strings"
	"testing"
)

func texts(remarks []Remark) string {
	var all []string
	for _, r := range remarks {
		all = append(all, r.String())
	}
	return strings.Join(all, "\n")
}

// Errors come last, where users look first, and otherwise the order stays.
func TestRemarksAreSortedBySeverity(t *testing.T) {
	t.Parallel()
	r, at := &report{}, &location{text: "a"}
	r.fail(at, "one")
	r.note(at, "two")
	r.warn(at, "three")
	r.note(at, "four %d", 4)
	r.fail(&location{}, "five")
	want := "note: a: two\nnote: a: four 4\nwarning: a: three\nerror: a: one\nerror: top level: five"
	if got := texts(r.finish()); got != want || !r.failed {
		t.Errorf("got\n%s", got)
	}
}

// Remarks beyond the bound are counted; an error among them still fails the conversion.
func TestRemarksBeyondTheBound(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		r := &report{}
		for i := range maxRemarks + 3 {
			r.note(&location{text: fmt.Sprint(i)}, "x")
		}
		if fails {
			r.fail(&location{}, "y")
		}
		remarks := r.finish()
		want := "warning: top level: 3 more remarks are not shown"
		if fails {
			want = "error: top level: 4 more remarks are not shown"
		}
		if got := remarks[len(remarks)-1].String(); len(remarks) != maxRemarks+1 || got != want || r.failed != fails {
			t.Errorf("%d remarks, failed %t, the last is %s", len(remarks), r.failed, got)
		}
	}
}

func TestNoRemarks(t *testing.T) {
	t.Parallel()
	r := &report{}
	if got := r.finish(); len(got) != 0 || r.failed {
		t.Errorf("got %v", got)
	}
}
