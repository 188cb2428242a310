package clusternet

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// A new node's pods are the cluster's once the facts are looked for again; while the API server is away, the last facts hold.
func TestFactsComeFromTheAPIServer(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("needs an API server: set KUBEBUILDER_ASSETS, e.g. to the output of 'make -s envtest-assets'")
	}
	ctrl.SetLogger(logr.Discard())
	env := &envtest.Environment{}
	conf, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			if err := env.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("search ns.svc.test.example svc.test.example\nnameserver 10.0.0.10\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	clients := kubernetes.NewForConfigOrDie(conf)
	addNode(t, clients, "one", "192.0.2.0/25")
	s, err := New(clients, path, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25")}
	f, err := s.Facts(t.Context())
	if err != nil || len(f.APIServer) == 0 || len(f.Services) == 0 || f.Domain != "test.example" || !slices.Equal(f.Pods, want) {
		t.Fatalf("%+v: %v", f, err)
	}
	addNode(t, clients, "two", "192.0.2.128/25")
	s.refresh(t.Context())
	want = append(want, netip.MustParsePrefix("192.0.2.128/25"))
	if f, err = s.Facts(t.Context()); err != nil || !slices.Equal(f.Pods, want) {
		t.Errorf("with another node: %+v: %v", f, err)
	}
	addNode(t, clients, "three")
	s.refresh(t.Context())
	if f, err = s.Facts(t.Context()); err != nil || len(f.Pods) > 0 {
		t.Errorf("with a node that doesn't say: %+v: %v", f, err)
	}
	stop()
	s.refresh(t.Context())
	if again, err := s.Facts(t.Context()); err != nil || again != f {
		t.Errorf("without the API server: %+v: %v", again, err)
	}
	nothing, err := New(clients, path, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if f, err := nothing.Facts(t.Context()); err == nil {
		t.Errorf("found %+v without an API server", f)
	}
}

func addNode(t *testing.T, clients kubernetes.Interface, name string, cidrs ...string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
	if len(cidrs) > 0 {
		n.Spec.PodCIDR = cidrs[0]
	}
	if _, err := clients.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
