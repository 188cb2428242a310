package doctor

import (
	"encoding/json"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/internal/testing/plugintest"
)

// admissionAs has the API server list the admission policies and bindings of config/admission, after a change of each.
func admissionAs(f *plugintest.Fixture, change func(*unstructured.Unstructured)) string {
	f.T.Helper()
	files, err := filepath.Glob("../../../config/admission/*.yaml")
	if err != nil {
		f.T.Fatal(err)
	}
	lists := map[string]*unstructured.UnstructuredList{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.T.Fatal(err)
		}
		for _, document := range strings.Split(string(raw), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
				f.T.Fatal(err)
			}
			plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
			resource := plural.Resource
			if lists[resource] == nil {
				lists[resource] = &unstructured.UnstructuredList{}
				lists[resource].SetAPIVersion("admissionregistration.k8s.io/v1")
				lists[resource].SetKind(object.GetKind() + "List")
			}
			change(object)
			lists[resource].Items = append(lists[resource].Items, *object)
		}
	}
	return f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		list := lists[path.Base(r.URL.Path)]
		if list == nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	})
}

// An admission policy that is there and isn't enforced is as bad as one that is missing.
func TestDoctorOnAdmissionPoliciesThatAreNotEnforced(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	set := func(kind, name string, value any, fields ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			if o.GetKind() == kind && o.GetName() == name {
				if err := unstructured.SetNestedField(o.Object, value, append([]string{"spec"}, fields...)...); err != nil {
					t.Error(err)
				}
			}
		}
	}
	const policy, binding = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
	some := map[string]any{"team": "a"}
	for want, change := range map[string]func(*unstructured.Unstructured){
		"OK admission 16 admission policies with their bindings":                                    func(*unstructured.Unstructured) {},
		"not enforced: " + binding + " toolcall-create (its validationActions lack Deny)":           set(binding, "toolcall-create", []any{"Audit"}, "validationActions"),
		"not enforced: " + binding + " toolcall-identity (its validationActions lack Deny)":         set(binding, "toolcall-identity", []any{"Audit", "Warn"}, "validationActions"),
		"not enforced: " + binding + " toolcall-size (its matchResources leave objects out)":        set(binding, "toolcall-size", some, "matchResources", "namespaceSelector", "matchLabels"),
		"not enforced: " + policy + " toolcall-operator-objects (its failurePolicy isn't Fail)":     set(policy, "toolcall-operator-objects", "Ignore", "failurePolicy"),
		"not enforced: " + policy + " toolcall-session-identity (its failurePolicy isn't Fail)":     set(policy, "toolcall-session-identity", "Ignore", "failurePolicy"),
		"not enforced: " + policy + " toolcall-identity (its matchConstraints leave toolcalls out)": set(policy, "toolcall-identity", some, "matchConstraints", "objectSelector", "matchLabels"),
		"not enforced: " + binding + " toolcall-update (it binds another policy)":                   set(binding, "toolcall-update", "toolcall-size", "policyName"),
	} {
		out, errs, code := plugintest.CommandAt(admissionAs(f, change), "-n", f.Namespace, "doctor")
		plugintest.Printed{Out: out, Err: errs, Code: code}.Expect(t, 1, want)
		if strings.HasPrefix(want, "not") {
			plugintest.Printed{Out: out, Err: errs, Code: code}.Expect(t, 1, "PROBLEM admission "+want, "to do: as a cluster administrator, install the operator")
		}
	}
}

// What is missing and what isn't enforced are said apart.
func TestDoctorOnAdmissionThatIsMissingAndWeak(t *testing.T) {
	t.Parallel()
	got := admissionFindings(true, nil, []string{"a"}, []string{"b (why)"})
	if len(got) != 2 || got[0].Detail != "missing: a" || got[1].Detail != "not enforced: b (why)" || got[1].State != stateProblem {
		t.Errorf("%+v", got)
	}
}

// A policy that is weak doesn't hide that those which fill in who creates a call are missing.
func TestDoctorOnAdmissionThatIsAbsentAndWeak(t *testing.T) {
	t.Parallel()
	got := admissionFindings(true, []string{"a"}, nil, []string{"b (why)"})
	if len(got) != 2 || got[0].Detail != "not enforced: b (why)" || got[0].State != stateProblem || !strings.HasPrefix(got[1].Detail, "missing: a: ") || got[1].State != stateWarning {
		t.Errorf("%+v", got)
	}
}
