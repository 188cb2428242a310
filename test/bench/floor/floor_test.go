package floor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestRulesAreCountedAndStripped(t *testing.T) {
	t.Parallel()
	definition := func() map[string]any {
		rules := []any{map[string]any{"rule": "a"}, map[string]any{"rule": "b"}}
		return map[string]any{"versions": []any{map[string]any{
			"x-kubernetes-validations": rules[:1],
			"properties":               map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-validations": rules}},
		}}}
	}
	kept, stripped := definition(), definition()
	if n := visitRules(kept, false); n != 3 || !cmp.Equal(kept, definition()) {
		t.Errorf("%d are counted, and the definition is %v", n, kept)
	}
	want := map[string]any{"versions": []any{map[string]any{"properties": map[string]any{"spec": map[string]any{"type": "object"}}}}}
	if n := visitRules(stripped, true); n != 0 || !cmp.Equal(stripped, want) {
		t.Errorf("%d are left, and the definition is %v", n, stripped)
	}
}

func TestAnotherCheckoutsPoliciesApplyToItsCopyAlone(t *testing.T) {
	t.Parallel()
	v := &Variant{Group: "beside.toolcall.dev", Folder: "../../..", Policies: true, Prefix: "beside-"}
	objects, err := v.objects()
	if err != nil {
		t.Fatal(err)
	}
	names, policies := map[string]bool{}, 0
	for _, o := range objects[1:] {
		names[o.GetName()] = true
	}
	if group, _, _ := unstructured.NestedString(objects[0].Object, "spec", "group"); group != v.Group || objects[0].GetName() != "toolcalls."+v.Group {
		t.Errorf("the definition is %s of group %s", objects[0].GetName(), group)
	}
	for _, o := range objects[1:] {
		if policy, bound, _ := unstructured.NestedString(o.Object, "spec", "policyName"); bound {
			policies++
			if !names[policy] {
				t.Errorf("%s %s binds policy %s, which isn't among %v", o.GetKind(), o.GetName(), policy, names)
			}
		}
		raw, err := o.MarshalJSON()
		if err != nil || strings.Contains(string(raw), `"apiGroups":["toolcall.dev"]`) || !strings.HasPrefix(o.GetName(), v.Prefix) {
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
