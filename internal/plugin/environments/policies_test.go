package environments

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// An operator or API server that fails in the middle of check makes check fail: it doesn't say that the call is allowed.
func TestCheckWhoseReadsFail(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	f.Environment("tools", true)
	for _, part := range []string{"/toolcalls", "/toolcallreviews"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.Contains(r.URL.Path, part) {
					http.Error(w, "etcd is unavailable", http.StatusInternalServerError)
					return
				}
				next.ServeHTTP(w, r)
			})
			out, errs, code := plugintest.Run("", "--kubeconfig", config, "-n", f.Namespace, "check", "--", "ls")
			if code != 125 || strings.Contains(out, "yes") || !strings.Contains(errs, "etcd is unavailable") && !strings.Contains(errs, "InternalError") && !strings.Contains(errs, "error on the server") {
				t.Errorf("exit code %d, %q, %q", code, out, errs)
			}
		})
	}
}

func TestSummaryOfPolicies(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		policy v1alpha1.ExecutionPolicySpec
		want   string
	}{
		"the defaults": {v1alpha1.ExecutionPolicySpec{}, "any program; code in python"},
		"nothing but a list": {v1alpha1.ExecutionPolicySpec{
			Binaries: &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "cat"}}, Code: &v1alpha1.CodePolicy{Enabled: ptr.To(false)},
		}, "ls, cat"},
		"an enforced empty list": {v1alpha1.ExecutionPolicySpec{Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced}}, "no program; code in python"},
		"shell and any language": {v1alpha1.ExecutionPolicySpec{
			Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}, Code: &v1alpha1.CodePolicy{Languages: []string{}},
		}, "any program; shell; code in any language"},
		"many programs": {v1alpha1.ExecutionPolicySpec{
			Binaries: &v1alpha1.BinariesPolicy{Allowed: strings.Split("abcdefgh", "")}, Code: &v1alpha1.CodePolicy{Enabled: ptr.To(false)},
		}, "a, b, c, d, e, f and 2 more"},
	}
	for name, c := range cases {
		if got := policySummary(&c.policy); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
