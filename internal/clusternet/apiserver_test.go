package clusternet

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"toolcall.dev/operator/internal/testing/apiservertest"
)

// A new node's pods are the cluster's once the facts are looked for again; while the API server is away, the last facts hold.
func TestFactsComeFromTheAPIServer(t *testing.T) {
	server := apiservertest.New(t, apiservertest.Options{})
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("search ns.svc.test.example svc.test.example test.example\nnameserver 10.0.0.10\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	clients := kubernetes.NewForConfigOrDie(server.Config)
	addNode(t, clients, "one", "192.0.2.0/25")
	s, err := New(clients, path, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25")}
	f, err := s.Facts(t.Context())
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		// A new API server announces itself a little later.
		f, err = s.Facts(t.Context())
	}
	if err != nil || len(f.APIServer) == 0 || len(f.Services) == 0 || f.Domain != "test.example" || !slices.Equal(f.Pods, want) {
		t.Fatalf("%+v: %v", f, err)
	}
	addNode(t, clients, "two", "192.0.2.128/25")
	// It is new, and doesn't say which addresses its pods have.
	addNode(t, clients, "three")
	third, err := clients.CoreV1().Nodes().Get(t.Context(), "three", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	third.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "198.51.100.3"}, {Type: corev1.NodeHostName, Address: "three"}}
	if _, err := clients.CoreV1().Nodes().UpdateStatus(t.Context(), third, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.3/32")}
	for deadline := time.Now().Add(time.Minute); !slices.Equal(f.Pods, want); time.Sleep(50 * time.Millisecond) {
		// The API server's cache is a little behind.
		if f, err = s.look(t.Context()); err != nil || time.Now().After(deadline) {
			t.Fatalf("with other nodes: %+v: %v", f, err)
		}
	}
	for _, name := range []string{"one", "two"} {
		if err := clients.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); len(f.Pods) > 0; time.Sleep(50 * time.Millisecond) {
		if f, err = s.look(t.Context()); err != nil || time.Now().After(deadline) {
			t.Fatalf("with a node alone that doesn't say: %+v: %v", f, err)
		}
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := s.look(t.Context()); err == nil {
		t.Error("it was found without an API server")
	}
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
