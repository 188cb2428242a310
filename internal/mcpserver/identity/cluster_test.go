package identity

import (
	"strings"
	"testing"
)

func TestClusterFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cluster Cluster
		want    string
	}{
		"an authority without a server": {Cluster{CAFile: "ca"}, "can only be used with --server"},
		"a token without a server":      {Cluster{TokenFile: "t"}, "can only be used with --server"},
		"a server and a kubeconfig":     {Cluster{Server: "https://x", Kubeconfig: "k"}, "remove --kubeconfig"},
		"a server and a context":        {Cluster{Server: "https://x", Context: "c"}, "remove --kubeconfig"},
		"no namespace's name":           {Cluster{Server: "https://x", Namespace: "../a"}, `namespace "../a"`},
		"no such file":                  {Cluster{Kubeconfig: "/nonexistent"}, "read the kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := test.cluster.Load(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
