package denials

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// Each explanation names a rule and what the requester can do, in plain text without a final full stop.
func TestRulesReadAlike(t *testing.T) {
	t.Parallel()
	for reason, r := range rules {
		for _, text := range []string{r.Field, r.Owner, r.Requester} {
			if strings.HasSuffix(text, ".") || strings.TrimSpace(text) != text {
				t.Errorf("%s: %q", reason, text)
			}
		}
		if r.Field == "" || r.Requester == "" {
			t.Errorf("%s has no rule or no advice: %+v", reason, r)
		}
	}
}

// explain-denial needs a rule for every reason of a denial.
func TestEveryDenialHasARule(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{
		v1alpha1.ReasonEmptyCommand, v1alpha1.ReasonAgentNotAllowed, v1alpha1.ReasonSessionNotAllowed, v1alpha1.ReasonBinaryPathTraversal, v1alpha1.ReasonBinaryNotBareName,
		v1alpha1.ReasonBinaryNotAllowed, v1alpha1.ReasonArgumentNotAllowed, v1alpha1.ReasonEnvNotAllowed,
		v1alpha1.ReasonShellDisabled, v1alpha1.ReasonShellCommandNotAllowed, v1alpha1.ReasonShellNotParseable, v1alpha1.ReasonCodeDisabled,
		v1alpha1.ReasonLanguageNotAllowed, v1alpha1.ReasonModuleNotAllowed, v1alpha1.ReasonNetworkNotAllowed, v1alpha1.ReasonExecutionTimeTooLong,
		v1alpha1.ReasonSourceTooLarge, v1alpha1.ReasonUnknownTool, v1alpha1.ReasonInvalidArguments, v1alpha1.ReasonGuardError,
	} {
		if r := rules[reason]; r.Field == "" || r.Requester == "" {
			t.Errorf("%s: %+v", reason, r)
		}
	}
}
