package doctor

import (
	"net/http"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/testing/plugintest"
	"toolcall.dev/operator/internal/version"
)

func TestVersionNamesTheAPI(t *testing.T) {
	t.Parallel()
	out, errs, code := plugintest.Run("", "version", "--client")
	if code != 0 || errs != "" || !strings.HasPrefix(out, "kubectl-toolcall ") || !strings.Contains(out, "API toolcall.dev/v1alpha1") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	out, errs, code = plugintest.Run("", "version", "--client", "-o", "jsonpath={.kind} {.plugin.api}")
	if code != 0 || errs != "" || out != "Versions toolcall.dev/v1alpha1" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// The operator says its version with each answer of the aggregated API, also to somebody without any right.
func TestVersionOfTheOperator(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Run("version", "--as", "nobody").Expect(t, 0, "operator "+version.String()+" (says the API subresources.toolcall.dev/v1alpha1)")
	f.Run("version", "-o", "yaml").Expect(t, 0, "kind: Versions", "operator: source: says the API")
}

// An older operator doesn't say its version.
func TestVersionOfAnOlderOperator(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(&withoutVersion{w}, r)
	})
	out, errs, code := plugintest.Run("", "--kubeconfig", config, "version")
	if code != 1 || !strings.HasPrefix(out, "kubectl-toolcall ") || !strings.Contains(errs, "the operator is older than this plugin") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// withoutVersion drops the header that says the version.
type withoutVersion struct{ http.ResponseWriter }

func (w *withoutVersion) WriteHeader(code int) {
	w.Header().Del(headerVersion)
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets the proxy flush.
func (w *withoutVersion) Unwrap() http.ResponseWriter { return w.ResponseWriter }
