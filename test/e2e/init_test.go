package e2e

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// Each policy that init writes lets its agent work with its own kubeconfig, and the node refuses the rest.
func TestAgentsOfInit(t *testing.T) {
	t.Parallel()
	sp := newBareSpace(t)
	const source = "open('/workspace/x', 'w').write('1')\nprint('wrote')\ntry:\n  open('/etc/x', 'w')\nexcept OSError:\n  print('refused')\n"
	for policy, c := range map[string]struct {
		args []string
		want string
	}{
		"read-only": {[]string{"--shell", "ls -d /workspace; { echo 1 > /workspace/x; } 2>/dev/null || echo refused"}, "/workspace\nrefused\n"},
		"coding":    {[]string{"--shell", "cp /bin/ls mine && echo wrote; ./mine 2>/dev/null || echo refused"}, "wrote\nrefused\n"},
		"data":      {[]string{"--code", "python", "-f", "-"}, "wrote\nrefused\n"},
		"ci":        {[]string{"--shell", "cp /bin/ls mine && ./mine mine; curl https://example.com 2>/dev/null || echo refused"}, "mine\nrefused\n"},
	} {
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		made := sp.plugin(t, "", "init", sp.namespace, "--agent", policy, "--policy", policy, "--image", toolImage, "--kubeconfig-out", kubeconfig)
		sp.discard(t, &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: sp.namespace + "." + policy}})
		ran := sp.plugin(t, source, append([]string{"run", "--kubeconfig", kubeconfig, "--environment", policy}, c.args...)...)
		if made.code != 0 || ran.code != 0 || ran.out != c.want {
			t.Errorf("%s: exit codes %d and %d\n%s%s%s%s", policy, made.code, ran.code, made.out, made.err, ran.out, ran.err)
		}
	}
}
