package access

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// shipped are the admission policies and bindings of config/admission, by kind and name.
type shipped map[string]client.Object

func ship(t *testing.T) shipped {
	t.Helper()
	all := shipped{}
	files, err := filepath.Glob("../../config/admission/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			decoded, kind, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
			if err != nil {
				continue // Not one of Kubernetes' own kinds.
			}
			object := decoded.(client.Object)
			object.SetCreationTimestamp(metav1.NewTime(created))
			all[kind.Kind+" "+object.GetName()] = object
		}
	}
	return all
}

// Get implements client.Reader.
func (s shipped) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := reflect.TypeOf(into).Elem().Name()
	found, ok := s[kind+" "+key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List is not needed.
func (s shipped) List(context.Context, client.ObjectList, ...client.ListOption) error {
	panic("nothing is listed")
}

func sessionAfter(d time.Duration) *v1alpha1.ToolSession {
	return &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "session", CreationTimestamp: metav1.NewTime(created.Add(d))}}
}

// sessionParts are what has to be in force for sessions.
var sessionParts = []string{
	checkKind + " " + SessionCheckPolicy, checkBoundKind + " " + SessionCheckPolicy,
	checkKind + " " + SessionUpdatePolicy, checkBoundKind + " " + SessionUpdatePolicy,
}

func TestWhatIsShippedVouchesForSessions(t *testing.T) {
	t.Parallel()
	r := &Requesters{Reader: ship(t)}
	if vouched, missing, err := r.SessionVouched(t.Context(), sessionAfter(time.Hour)); !vouched || missing != "" || err != nil {
		t.Errorf("vouched: %t, missing %q, %v", vouched, missing, err)
	}
}

// Calls and sessions are believed apart: what holds for the one says nothing about the other.
func TestEachPolicyOfSessionsIsNeededAndNoneOfCalls(t *testing.T) {
	t.Parallel()
	for _, part := range sessionParts {
		i := ship(t)
		delete(i, part)
		r := &Requesters{Reader: i}
		if vouched, missing, err := r.SessionVouched(t.Context(), sessionAfter(time.Hour)); vouched || missing != part || err != nil {
			t.Errorf("without %s: vouched: %t, missing %q, %v", part, vouched, missing, err)
		}
		if vouched, missing, err := r.Vouched(t.Context(), callAfter(time.Hour)); !vouched || err != nil {
			t.Errorf("a call without %s: missing %q, %v", part, missing, err)
		}
		i = ship(t)
		i[part].SetCreationTimestamp(metav1.NewTime(created.Add(2 * time.Hour)))
		if vouched, missing, err := (&Requesters{Reader: i}).SessionVouched(t.Context(), sessionAfter(time.Hour)); vouched || !strings.Contains(missing, "created after the session") || err != nil {
			t.Errorf("%s is younger: vouched: %t, missing %q, %v", part, vouched, missing, err)
		}
	}
	i := ship(t)
	for _, kind := range []string{checkKind, checkBoundKind} {
		delete(i, kind+" "+CheckPolicy)
	}
	if vouched, missing, err := (&Requesters{Reader: i}).SessionVouched(t.Context(), sessionAfter(time.Hour)); !vouched || err != nil {
		t.Errorf("without the policies of calls: missing %q, %v", missing, err)
	}
}

func TestAPolicyThatLeavesSessionsOutVouchesForNone(t *testing.T) {
	t.Parallel()
	rules := func(change func(*admissionv1.NamedRuleWithOperations)) func(client.Object) {
		return func(o client.Object) {
			switch o := o.(type) {
			case *admissionv1.ValidatingAdmissionPolicy:
				change(&o.Spec.MatchConstraints.ResourceRules[0])
			}
		}
	}
	for name, tc := range map[string]struct {
		parts  []string
		change func(client.Object)
		why    string
	}{
		"calls alone": {
			[]string{sessionParts[0], sessionParts[2]},
			rules(func(r *admissionv1.NamedRuleWithOperations) { r.Resources = []string{"toolcalls"} }), "leave toolsessions out",
		},
		"updates alone": {
			[]string{sessionParts[0]},
			rules(func(r *admissionv1.NamedRuleWithOperations) {
				r.Operations = []admissionv1.OperationType{admissionv1.Update}
			}), "leave toolsessions out",
		},
		"new ones alone": {
			[]string{sessionParts[2]},
			rules(func(r *admissionv1.NamedRuleWithOperations) {
				r.Operations = []admissionv1.OperationType{admissionv1.Create}
			}), "leave toolsessions out",
		},
		"audited": {[]string{sessionParts[1], sessionParts[3]}, func(o client.Object) {
			o.(*admissionv1.ValidatingAdmissionPolicyBinding).Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		}, "lack Deny"},
		"of a condition": {[]string{sessionParts[0], sessionParts[2]}, func(o client.Object) {
			o.(*admissionv1.ValidatingAdmissionPolicy).Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "x", Expression: "false"}}
		}, "matchConditions leave toolsessions out"},
		"that may fail": {[]string{sessionParts[2]}, func(o client.Object) {
			o.(*admissionv1.ValidatingAdmissionPolicy).Spec.FailurePolicy = ptr.To(admissionv1.Ignore)
		}, "failurePolicy"},
		"bound to the policy of calls": {[]string{sessionParts[1]}, func(o client.Object) {
			o.(*admissionv1.ValidatingAdmissionPolicyBinding).Spec.PolicyName = CheckPolicy
		}, "another policy"},
	} {
		for _, part := range tc.parts {
			i := ship(t)
			tc.change(i[part])
			vouched, missing, err := (&Requesters{Reader: i}).SessionVouched(t.Context(), sessionAfter(time.Hour))
			if vouched || err != nil || !strings.HasPrefix(missing, part+" ") || !strings.Contains(missing, tc.why) {
				t.Errorf("%s %s: vouched: %t, missing %q, %v", part, name, vouched, missing, err)
			}
		}
	}
}
