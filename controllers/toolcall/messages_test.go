package toolcall

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/host"
)

// texts are what others make the operator say.
func texts() []string {
	return []string{
		"", "a", "é", "über", "日本", "\xff", "\xc3", strings.Repeat("x", v1alpha1.MaxMessageBytes), strings.Repeat("x", v1alpha1.MaxMessageBytes+1),
		strings.Repeat("é", v1alpha1.MaxMessageBytes), "x" + strings.Repeat("é", v1alpha1.MaxMessageBytes), strings.Repeat("日", v1alpha1.MaxMessageBytes), strings.Repeat("\xff", 2*v1alpha1.MaxMessageBytes),
	}
}

func TestAMessageBeginsWithACapital(t *testing.T) {
	t.Parallel()
	for _, text := range texts() {
		upper := host.Capitalized(text)
		if utf8.ValidString(text) && (!utf8.ValidString(upper) || !strings.EqualFold(upper, text)) {
			t.Errorf("%.20q begins with %.20q", text, upper)
		}
	}
	for text, want := range map[string]string{"": "", "the call": "The call", "über": "Über", "日本": "日本", "1": "1"} {
		if got := host.Capitalized(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestAMessageIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	for _, text := range texts() {
		s := observed().fail("Why", "x"+text)
		finished := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFinished)
		if finished.Message != bounds.Text(s.Message, v1alpha1.MaxConditionMessageBytes) || s.Output != s.Message || len(s.Message) > v1alpha1.MaxMessageBytes {
			t.Errorf("%.20q: message of %d bytes, condition of %d, output of %d", text, len(s.Message), len(finished.Message), len(s.Output))
		}
	}
}
