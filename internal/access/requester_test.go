package access

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// installed is what of config/admission makes the operator believe a call: what the API server would answer.
type installed struct {
	check      *admissionv1.ValidatingAdmissionPolicy
	checkBound *admissionv1.ValidatingAdmissionPolicyBinding
	// err is the answer to the request for the object of that type.
	err map[string]error
}

const checkKind, checkBoundKind = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"

// Get implements client.Reader.
func (i *installed) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	notFound := apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	var kind string
	var found client.Object
	switch into.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		kind, found = checkKind, i.check
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		kind, found = checkBoundKind, i.checkBound
	}
	if err := i.err[kind]; err != nil {
		return err
	}
	if found.GetName() != key.Name || key.Namespace != "" {
		return notFound
	}
	switch into := into.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		i.check.DeepCopyInto(into)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		i.checkBound.DeepCopyInto(into)
	}
	return nil
}

// List is not needed.
func (i *installed) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nothing is listed")
}

var created = time.Unix(1_700_000_000, 0)

// install reads config/admission as it is shipped.
func install(t *testing.T) *installed {
	t.Helper()
	files, err := filepath.Glob("../../config/admission/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("config/admission: %v", err)
	}
	i := &installed{err: map[string]error{}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			i.add(document)
		}
	}
	if i.check == nil || i.checkBound == nil {
		t.Fatal("config/admission lacks an admission policy or a binding")
	}
	for _, o := range []client.Object{i.check, i.checkBound} {
		o.SetCreationTimestamp(metav1.NewTime(created))
	}
	return i
}

func (i *installed) add(document string) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
	if err != nil {
		return // Not one of Kubernetes' own kinds.
	}
	switch o := decoded.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		if o.Name == CheckPolicy {
			i.check = o
		}
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		if o.Name == CheckPolicy {
			i.checkBound = o
		}
	}
}

// callAfter is a call that was created that long after the admission policies.
func callAfter(d time.Duration) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", CreationTimestamp: metav1.NewTime(created.Add(d))}}
}

func TestWhatIsShippedVouchesForCalls(t *testing.T) {
	t.Parallel()
	r := &Requesters{Reader: install(t)}
	if vouched, missing, err := r.Vouched(context.Background(), callAfter(time.Hour)); !vouched || missing != "" || err != nil {
		t.Errorf("vouched: %t, missing %q, %v", vouched, missing, err)
	}
}

var (
	someLabels = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	someNames  = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"ns"},
	}}}
	notThis = []admissionv1.NamedRuleWithOperations{{ResourceNames: []string{"call"}}}
)

// weakMatches are selections that leave calls out.
func weakMatches() map[string]func(*admissionv1.MatchResources) {
	rule := func(change func(*admissionv1.NamedRuleWithOperations)) func(*admissionv1.MatchResources) {
		return func(m *admissionv1.MatchResources) { change(&m.ResourceRules[0]) }
	}
	return map[string]func(*admissionv1.MatchResources){
		"some namespaces":     func(m *admissionv1.MatchResources) { m.NamespaceSelector = someNames },
		"labelled namespaces": func(m *admissionv1.MatchResources) { m.NamespaceSelector = someLabels },
		"labelled calls":      func(m *admissionv1.MatchResources) { m.ObjectSelector = someLabels },
		"an exception":        func(m *admissionv1.MatchResources) { m.ExcludeResourceRules = notThis },
		"no rules":            func(m *admissionv1.MatchResources) { m.ResourceRules = nil },
		"updates": rule(func(r *admissionv1.NamedRuleWithOperations) {
			r.Operations = []admissionv1.OperationType{admissionv1.Update}
		}),
		"no operation":          rule(func(r *admissionv1.NamedRuleWithOperations) { r.Operations = nil }),
		"another group":         rule(func(r *admissionv1.NamedRuleWithOperations) { r.APIGroups = []string{"other.dev"} }),
		"another version":       rule(func(r *admissionv1.NamedRuleWithOperations) { r.APIVersions = []string{"v9"} }),
		"another resource":      rule(func(r *admissionv1.NamedRuleWithOperations) { r.Resources = []string{"skills"} }),
		"a subresource":         rule(func(r *admissionv1.NamedRuleWithOperations) { r.Resources = []string{"toolcalls/status"} }),
		"calls of a name":       rule(func(r *admissionv1.NamedRuleWithOperations) { r.ResourceNames = []string{"x"} }),
		"what has no namespace": rule(func(r *admissionv1.NamedRuleWithOperations) { r.Scope = ptr.To(admissionv1.ClusterScope) }),
		"a scope nobody knows":  rule(func(r *admissionv1.NamedRuleWithOperations) { r.Scope = ptr.To(admissionv1.ScopeType("Other")) }),
	}
}

// weaknesses are what somebody might do to the admission policies so that they hold no more, while they are there.
func weaknesses() map[string]struct {
	change func(*installed)
	kind   string
	why    string
} {
	type weakness = struct {
		change func(*installed)
		kind   string
		why    string
	}
	audit := []admissionv1.ValidationAction{admissionv1.Audit}
	all := map[string]weakness{
		"a check that only audits": {func(i *installed) { i.checkBound.Spec.ValidationActions = audit }, checkBoundKind, "lack Deny"},
		"a check that only warns": {func(i *installed) {
			i.checkBound.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
		}, checkBoundKind, "lack Deny"},
		"a check that does nothing": {func(i *installed) { i.checkBound.Spec.ValidationActions = nil }, checkBoundKind, "lack Deny"},
		"a check bound for pods alone": {func(i *installed) {
			i.checkBound.Spec.MatchResources = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
				{RuleWithOperations: admissionv1.RuleWithOperations{Rule: admissionv1.Rule{Resources: []string{"pods"}}}},
			}}
		}, checkBoundKind, "matchResources"},
		"a binding of another check": {func(i *installed) { i.checkBound.Spec.PolicyName = "other" }, checkBoundKind, "another policy"},
		"a check that may fail":      {func(i *installed) { i.check.Spec.FailurePolicy = ptr.To(admissionv1.Ignore) }, checkKind, "failurePolicy"},
		"a check with a condition": {func(i *installed) {
			i.check.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "x", Expression: "false"}}
		}, checkKind, "matchConditions"},
		"an empty check":     {func(i *installed) { i.check.Spec.Validations = nil }, checkKind, "empty"},
		"a check of nothing": {func(i *installed) { i.check.Spec.MatchConstraints = nil }, checkKind, "matchConstraints"},
		"a check that depends on a parameter": {func(i *installed) {
			i.check.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		}, checkKind, "parameter"},
		"a check bound for a parameter": {func(i *installed) {
			i.checkBound.Spec.ParamRef = &admissionv1.ParamRef{Name: "x", ParameterNotFoundAction: ptr.To(admissionv1.AllowAction)}
		}, checkBoundKind, "parameter"},
	}
	for name, change := range weakMatches() {
		all["a check of "+name] = weakness{func(i *installed) { change(i.check.Spec.MatchConstraints) }, checkKind, "matchConstraints"}
		if name == "no rules" {
			// That is how bindings are: they bind all that the policy matches.
			continue
		}
		bound := func(into **admissionv1.MatchResources, policy *admissionv1.MatchResources) {
			*into = policy.DeepCopy()
			change(*into)
		}
		all["a check bound for "+name] = weakness{func(i *installed) {
			bound(&i.checkBound.Spec.MatchResources, i.check.Spec.MatchConstraints)
		}, checkBoundKind, "matchResources"}
		all["a check bound for "+name+", without rules of its own"] = weakness{func(i *installed) {
			i.checkBound.Spec.MatchResources = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{}}}
			change(i.checkBound.Spec.MatchResources)
		}, checkBoundKind, "matchResources"}
	}
	return all
}

func TestAnAdmissionPolicyThatDoesNotHoldVouchesForNobody(t *testing.T) {
	t.Parallel()
	for name, tc := range weaknesses() {
		i := install(t)
		tc.change(i)
		vouched, missing, err := (&Requesters{Reader: i}).Vouched(context.Background(), callAfter(time.Hour))
		if vouched || err != nil || !strings.HasPrefix(missing, tc.kind+" ") || !strings.Contains(missing, tc.why) {
			t.Errorf("%s: vouched: %t, missing %q, %v", name, vouched, missing, err)
		}
	}
}

// What is added to the shipped policies without making them weaker leaves them as good as they were.
func TestAnAdmissionPolicyThatHoldsMoreVouchesToo(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*installed){
		"all operations": func(i *installed) {
			i.check.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.OperationAll}
		},
		"more resources": func(i *installed) {
			i.check.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"skills", "toolcalls"}
		},
		"our version alone": func(i *installed) { i.check.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1alpha1"} },
		"what has a namespace": func(i *installed) {
			i.check.Spec.MatchConstraints.ResourceRules[0].Scope = ptr.To(admissionv1.NamespacedScope)
		},
		"any scope": func(i *installed) {
			i.check.Spec.MatchConstraints.ResourceRules[0].Scope = ptr.To(admissionv1.AllScopes)
		},
		"another rule before": func(i *installed) {
			i.check.Spec.MatchConstraints.ResourceRules = append(notThis[:1:1], i.check.Spec.MatchConstraints.ResourceRules...)
		},
		"empty selectors": func(i *installed) {
			i.check.Spec.MatchConstraints.NamespaceSelector, i.check.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
		},
		"bindings of all that the policies match": func(i *installed) {
			i.checkBound.Spec.MatchResources = i.check.Spec.MatchConstraints.DeepCopy()
		},
		"a binding of pods too": func(i *installed) {
			i.checkBound.Spec.MatchResources = i.check.Spec.MatchConstraints.DeepCopy()
			i.checkBound.Spec.MatchResources.ResourceRules[0].Resources = []string{"pods", "toolcalls"}
		},
		"a binding of anything": func(i *installed) { i.checkBound.Spec.MatchResources = &admissionv1.MatchResources{} },
		"no failure policy":     func(i *installed) { i.check.Spec.FailurePolicy = nil },
		"Deny beside Audit": func(i *installed) {
			i.checkBound.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit, admissionv1.Deny}
		},
		"one more validation": func(i *installed) {
			i.check.Spec.Validations = append(i.check.Spec.Validations, admissionv1.Validation{Expression: "true"})
		},
	} {
		i := install(t)
		change(i)
		if vouched, missing, err := (&Requesters{Reader: i}).Vouched(context.Background(), callAfter(time.Hour)); !vouched || err != nil {
			t.Errorf("%s: missing %q, %v", name, missing, err)
		}
	}
}

func TestAnAdmissionPolicyThatIsNotThereVouchesForNobody(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*installed)
		want   string
	}{
		"the check":       {func(i *installed) { i.check.Name = "other" }, checkKind + " " + CheckPolicy},
		"its own binding": {func(i *installed) { i.checkBound.Name = "other" }, checkBoundKind + " " + CheckPolicy},
	} {
		i := install(t)
		tc.change(i)
		vouched, missing, err := (&Requesters{Reader: i}).Vouched(context.Background(), callAfter(time.Hour))
		if vouched || missing != tc.want || err != nil {
			t.Errorf("%s: vouched: %t, missing %q, %v", name, vouched, missing, err)
		}
	}
}

// An error is no answer: whoever asks must not take it for a no, nor for a yes.
func TestWithoutAnAnswerNobodyIsVouchedFor(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for _, kind := range []string{checkKind, checkBoundKind} {
		i := install(t)
		i.err[kind] = down
		vouched, missing, err := (&Requesters{Reader: i}).Vouched(context.Background(), callAfter(time.Hour))
		if vouched || missing != "" || !errors.Is(err, down) || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: vouched: %t, missing %q, %v", kind, vouched, missing, err)
		}
	}
}

// The API server learns of a policy through a watch: a call that was created meanwhile may not have been checked.
func TestAPolicyThatIsYoungerThanTheCallDoesNotVouchForIt(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]bool{-time.Hour: false, 0: false, time.Second: false, admissionDelay: true, time.Hour: true} {
		for name, young := range map[string]func(*installed) client.Object{
			"the check": func(i *installed) client.Object { return i.check },
			"the other": func(i *installed) client.Object { return i.checkBound },
		} {
			i := install(t)
			for _, o := range []client.Object{i.check, i.checkBound} {
				o.SetCreationTimestamp(metav1.NewTime(created.Add(-24 * time.Hour)))
			}
			young(i).SetCreationTimestamp(metav1.NewTime(created))
			vouched, missing, err := (&Requesters{Reader: i}).Vouched(context.Background(), callAfter(after))
			if vouched != want || err != nil || !want && !strings.Contains(missing, "created after the call") {
				t.Errorf("%s, %s before the call: vouched: %t, missing %q, %v", name, after, vouched, missing, err)
			}
		}
	}
}

func TestAKindThatNobodyKnowsIsWeak(t *testing.T) {
	t.Parallel()
	if why := callGuards[0].weakness(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("x")}}); why == "" {
		t.Error("it is taken for an admission policy")
	}
}

// What is shipped holds everything to its rules, and so does no policy after one of these changes.
func TestWeaknessOfWhatIsInstalled(t *testing.T) {
	t.Parallel()
	i := install(t)
	for _, o := range []client.Object{i.check, i.checkBound} {
		if why := Weakness(o); why != "" {
			t.Errorf("%s: %s", o.GetName(), why)
		}
	}
	for name, tc := range weaknesses() {
		i := install(t)
		tc.change(i)
		if why := Weakness(i.check) + Weakness(i.checkBound); !strings.Contains(why, tc.why) {
			t.Errorf("%s: %q", name, why)
		}
	}
	// Of the others, each matches objects of its own.
	i.check.Name, i.check.Spec.MatchConstraints = "toolcall-size", nil
	i.checkBound.Name, i.checkBound.Spec.PolicyName = "toolcall-size", "toolcall-size"
	if why := Weakness(i.check) + Weakness(i.checkBound); why != "" {
		t.Errorf("another policy: %s", why)
	}
	i.check.Spec.FailurePolicy, i.checkBound.Spec.ValidationActions = ptr.To(admissionv1.Ignore), []admissionv1.ValidationAction{admissionv1.Audit}
	if policy, binding := Weakness(i.check), Weakness(i.checkBound); policy != ignoresFailures || !strings.Contains(binding, "lack Deny") {
		t.Errorf("another policy: %q, %q", policy, binding)
	}
}
