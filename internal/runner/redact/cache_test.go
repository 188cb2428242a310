package redact

import "testing"

func TestAMatcherIsMadeAgainForOtherValuesOnly(t *testing.T) {
	matcher := func(name, value string) *Matcher {
		t.Helper()
		m, err := For([]Value{{Name: name, Value: []byte(value)}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := matcher("a", "first-value")
	if matcher("a", "first-value") != first {
		t.Error("the same values have another matcher")
	}
	if m, err := For([]Value{{Name: "a", Value: []byte("first-value"), Foreign: true}}); err != nil || m == first {
		t.Errorf("a foreign value has the matcher of one that isn't: %v", err)
	}
	// Neither a name nor a value may run into its neighbour.
	for _, other := range [][2]string{{"a", "other-value"}, {"b", "first-value"}, {"af", "irst-value"}} {
		if m := matcher(other[0], other[1]); m == first || textOf(m, "first-value") == textOf(m, "x") {
			t.Errorf("%q has the first one's matcher", other)
		}
	}
	if got := textOf(matcher("b", "other-value"), "first-value"); got != "first-value" {
		t.Errorf("an earlier value is redacted: %q", got)
	}
	if _, err := For([]Value{{Name: "a", Value: zeros(MaxLength + 1)}}); err == nil {
		t.Error("a value that is too long passes")
	}
}

func zeros(n int) []byte { return make([]byte, n) }
