package host

import "testing"

func TestLevelsCountsPIDNamespaces(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]int{
		"Name:\tx\nNSpid:\t12\nNSpgid:\t12\n":  1,
		"Name:\tx\nNSpid:\t12\t1\nNSsid:\t1\n": 2,
		"NSpid:\t12\t4\t1\n":                   3,
		"Name:\tx\n":                           0,
		"":                                     0,
	} {
		if got := levels(status); got != want {
			t.Errorf("levels(%q) = %d, want %d", status, got, want)
		}
	}
}
