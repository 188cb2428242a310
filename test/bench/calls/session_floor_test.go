package calls

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/standalone"
)

// The floor's kind comes and goes beside the installed one, whose policies stay as they are.
func TestTheFloorIsMeasuredBesideTheInstalledKind(t *testing.T) {
	apiservertest.Needs(t)
	apiservertest.Reads(t, "config")
	t.Chdir("../../..")
	server, err := standalone.StartServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	r := &run{Command: &Command{session: sessionOptions{seconds: 1}}, say: t.Logf, client: server.Client, conf: server.Conf, name: "toolcall-bench-test"}
	b := &sessionBench{run: r, report: &sessionReport{}, values: map[string][]float64{}}
	go giveServiceAccount(t.Context(), server.Client, r.name+"-"+floorRoom)
	before := countPolicies(t, server.Client)
	if err := b.installFloor(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := countPolicies(t, server.Client); now <= before {
		t.Errorf("the floor's kind has no policies: there were %d, and are %d", before, now)
	}
	got, err := b.loadFloor(t.Context(), "first")
	if err != nil || got.Latency.Count == 0 || got.Rate <= 0 || got.Clients != floorClients {
		t.Errorf("got %+v, %v", got, err)
	}
	if again, err := b.loadFloor(t.Context(), "second"); err != nil || again.Rate <= 0 {
		t.Errorf("got %+v, %v", again, err)
	}
	if err := b.removeFloor(); err != nil {
		t.Error(err)
	}
	if now := countPolicies(t, server.Client); now != before {
		t.Errorf("there were %d policies, and are %d", before, now)
	}
}

// giveServiceAccount does what a controller of Kubernetes does, which isn't there.
func giveServiceAccount(ctx context.Context, c client.Client, namespace string) {
	_ = cluster.Eventually(ctx, "the namespace", func(ctx context.Context) (bool, error) {
		err := c.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
		return err == nil, nil
	})
}

func countPolicies(t *testing.T, c client.Client) (n int) {
	t.Helper()
	for _, kind := range []string{"ValidatingAdmissionPolicyList", "ValidatingAdmissionPolicyBindingList", "MutatingAdmissionPolicyList", "MutatingAdmissionPolicyBindingList"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		n += len(list.Items)
	}
	return n
}
