package toolcall

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	"toolcall.dev/operator/api/v1alpha1"
)

// texts are what others make the operator say.
func texts() []string {
	return []string{
		"", "a", "é", "über", "日本", "\xff", "\xc3", strings.Repeat("x", maxMessage), strings.Repeat("x", maxMessage+1),
		strings.Repeat("é", maxMessage), "x" + strings.Repeat("é", maxMessage), strings.Repeat("日", maxMessage), strings.Repeat("\xff", 2*maxMessage),
	}
}

func TestTextsAreCutWithoutBreakingThem(t *testing.T) {
	t.Parallel()
	for _, text := range texts() {
		got := clip(text, maxMessage)
		if clip(got, maxMessage) != got {
			t.Errorf("%.20q of %d bytes: cut again", text, len(text))
		}
		if len(got) > maxMessage || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%.20q of %d bytes: %d bytes, valid: %t", text, len(text), len(got), utf8.ValidString(got))
		}
		if len(text) <= maxMessage && got != text || len(text) > maxMessage && utf8.ValidString(text) && !strings.HasSuffix(got, " …") {
			t.Errorf("%.20q of %d bytes: %.20q", text, len(text), got)
		}
		upper := upperFirst(text)
		if utf8.ValidString(text) && (!utf8.ValidString(upper) || !strings.EqualFold(upper, text)) {
			t.Errorf("%.20q begins with %.20q", text, upper)
		}
	}
	for text, want := range map[string]string{"": "", "the call": "The call", "über": "Über", "日本": "日本", "1": "1"} {
		if got := upperFirst(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestAMessageIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	for _, text := range texts() {
		s := observed().fail("Why", "x"+text)
		finished := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFinished)
		if finished.Message != s.Message || s.Output != s.Message || len(s.Message) > maxMessage {
			t.Errorf("%.20q: message of %d bytes, condition of %d, output of %d", text, len(s.Message), len(finished.Message), len(s.Output))
		}
	}
}

func TestFirstRunes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		n    int
		want string
	}{{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"éèê", 2, "éè"}, {"abc", 0, ""}} {
		if got := firstRunes(tc.text, tc.n); got != tc.want {
			t.Errorf("%d of %q: %q", tc.n, tc.text, got)
		}
	}
}
