package calls

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
	"toolcall.dev/operator/test/bench/standalone"
)

func TestACopiedKindsPoliciesApplyToItAlone(t *testing.T) {
	t.Parallel()
	const group, prefix = "copy.toolcall.dev", "copy-"
	objects, err := copyOfKind("../../..", group, prefix)
	if err != nil {
		t.Fatal(err)
	}
	names, policies := map[string]bool{}, 0
	for _, o := range objects[1:] {
		names[o.GetName()] = true
	}
	if got, _, _ := unstructured.NestedString(objects[0].Object, "spec", "group"); got != group || objects[0].GetName() != "toolcalls."+group {
		t.Errorf("the definition is %s of group %s", objects[0].GetName(), got)
	}
	for _, o := range objects[1:] {
		if policy, bound, _ := unstructured.NestedString(o.Object, "spec", "policyName"); bound {
			policies++
			if !names[policy] {
				t.Errorf("%s %s binds policy %s, which isn't among %v", o.GetKind(), o.GetName(), policy, names)
			}
		}
		raw, err := o.MarshalJSON()
		if err != nil || strings.Contains(string(raw), `"apiGroups":["toolcall.dev"]`) || !strings.HasPrefix(o.GetName(), prefix) {
			t.Errorf("%v: %s", err, raw)
		}
		if strings.Contains(string(raw), `"apiGroups":["batch"]`) || strings.Contains(string(raw), `"toolsessions"`) {
			t.Errorf("%s would apply twice to what isn't a call: %s", o.GetName(), raw)
		}
	}
	if policies == 0 {
		t.Error("no policy is bound")
	}
}

// The floor's kind comes and goes beside the installed one, whose policies stay as they are.
func TestTheFloorIsMeasuredBesideTheInstalledKind(t *testing.T) {
	apiservertest.Needs(t)
	apiservertest.Reads(t, "config")
	t.Chdir("../../..")
	server, err := standalone.StartServer(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	report := measure.NewReport("", t.Output())
	p := &part{name: "part", bench: &bench{Command: &Command{rounds: 1}, report: report, client: server.Client, conf: server.Conf, name: "bench-test"}}
	go giveServiceAccount(t.Context(), server.Client, "bench-test-part-floor")
	before := countPolicies(t, server.Client)
	during := 0
	floor := p.floorScenario(3)
	floor.Clear = func(context.Context) error {
		during = countPolicies(t, server.Client)
		return nil
	}
	if err := p.inTurns(t.Context(), floor); err != nil {
		t.Error(err)
	}
	if during <= before {
		t.Errorf("the floor's kind has no policies: there were %d, and are %d", before, during)
	}
	if len(report.Rows) != 1 || report.Rows[0].Name != floorTitle || report.Rows[0].Count != 3 || report.Rows[0].Min <= 0 {
		t.Errorf("got %+v", report.Rows)
	}
	// Nothing here deletes namespaces that are empty.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("unused"))
	go finalize(t.Context(), server.Client, "bench-test-part-floor")
	if err := p.end(ctx, nil); err != nil {
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

// finalize does what another controller does.
func finalize(ctx context.Context, c client.Client, name string) {
	_ = cluster.Eventually(ctx, "the namespace to be deleted", func(ctx context.Context) (bool, error) {
		namespace := &corev1.Namespace{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil || namespace.DeletionTimestamp == nil {
			return false, nil
		}
		namespace.Spec.Finalizers = nil
		return c.SubResource("finalize").Update(ctx, namespace) == nil, nil
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
