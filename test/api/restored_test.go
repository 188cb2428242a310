package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// restored is a call as a restore tool, or kubectl apply of a saved one, sends it.
func restored(s *space, change func(*v1alpha1.ToolCall)) *v1alpha1.ToolCall {
	call := newCall(s.namespace, "")
	call.GenerateName = "r-"
	change(call)
	return call
}

func TestARestoredCallIsCancelled(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	s.grant("velero", "toolcalls", "create")
	labelled := func(key string) func(*v1alpha1.ToolCall) {
		return func(c *v1alpha1.ToolCall) { c.Labels = map[string]string{key: "nightly"} }
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ToolCall)
		want   string
	}{
		"a new call":     {func(*v1alpha1.ToolCall) {}, ""},
		"one's own name": {func(c *v1alpha1.ToolCall) { c.Spec.RequestedBy = &v1alpha1.Requester{Username: "velero", UID: "other"} }, ""},
		"no name":        {func(c *v1alpha1.ToolCall) { c.Spec.RequestedBy = &v1alpha1.Requester{Groups: []string{"g"}} }, ""},
		"another's name": {func(c *v1alpha1.ToolCall) { c.Spec.RequestedBy = &v1alpha1.Requester{Username: "alice"} }, v1alpha1.RestoredRequester},
		"another's name, cancelled": {func(c *v1alpha1.ToolCall) {
			c.Spec.Cancel, c.Spec.RequestedBy = true, &v1alpha1.Requester{Username: "alice"}
		}, v1alpha1.RestoredRequester},
		"one that waits":         {func(c *v1alpha1.ToolCall) { c.Status.Phase = v1alpha1.PhasePending }, ""},
		"one that succeeded":     {func(c *v1alpha1.ToolCall) { c.Status.Phase = v1alpha1.PhaseSucceeded }, v1alpha1.RestoredStatus},
		"one that failed":        {func(c *v1alpha1.ToolCall) { c.Status.Phase = v1alpha1.PhaseFailed }, v1alpha1.RestoredStatus},
		"one that was denied":    {func(c *v1alpha1.ToolCall) { c.Status.Phase = v1alpha1.PhaseDenied }, v1alpha1.RestoredStatus},
		"one that was cancelled": {func(c *v1alpha1.ToolCall) { c.Status.Phase = v1alpha1.PhaseCancelled }, v1alpha1.RestoredStatus},
		"from Velero":            {labelled("velero.io/restore-name"), v1alpha1.RestoredTool},
		"from Velero's backup":   {labelled("velero.io/backup-name"), v1alpha1.RestoredTool},
		"not to be in backups":   {labelled("velero.io/exclude-from-backup"), ""},
		"from Stork": {func(c *v1alpha1.ToolCall) {
			c.Annotations = map[string]string{"stork.libopenstorage.org/migrated": "true"}
		}, v1alpha1.RestoredTool},
		"with other annotations": {func(c *v1alpha1.ToolCall) {
			c.Annotations = map[string]string{"a": "b"}
			c.Status.Phase = v1alpha1.PhaseFailed
		}, v1alpha1.RestoredStatus},
		"with the mark of its own": {func(c *v1alpha1.ToolCall) {
			c.Annotations = map[string]string{v1alpha1.AnnotationRestored: "x", "a": "b"}
		}, ""},
		"with another mark": {func(c *v1alpha1.ToolCall) {
			c.Annotations = map[string]string{v1alpha1.AnnotationRestored: "x"}
			c.Status.Phase = v1alpha1.PhaseFailed
		}, v1alpha1.RestoredStatus},
		"with the mark, and nothing": {func(c *v1alpha1.ToolCall) { c.Annotations = map[string]string{v1alpha1.AnnotationRestored: ""} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, options := range [][]client.CreateOption{nil, {client.DryRunAll}} {
				call := restored(s, tc.change)
				others := call.Annotations["a"]
				if err := s.as("velero", asUser{}).Create(t.Context(), call, options...); err != nil {
					t.Fatal(err)
				}
				mark, marked := call.Annotations[v1alpha1.AnnotationRestored]
				if mark != tc.want || marked != (tc.want != "") || tc.want != "" && !call.Spec.Cancel || tc.want == "" && call.Spec.Cancel {
					t.Errorf("the mark is %q, cancel is %t", mark, call.Spec.Cancel)
				}
				if by := call.Spec.RequestedBy; by.Username != "velero" || by.UID != "" || call.Annotations["a"] != others {
					t.Errorf("requestedBy is %+v, annotations are %v", by, call.Annotations)
				}
			}
		})
	}
}

// kubectl saves a call with its status, and brings it back in each of these ways.
func TestACallThatKubectlBringsBackIsCancelled(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	s.grant("alice", "toolcalls", "create", "get", "patch", "update", "delete")
	for _, how := range [][]string{
		{"create", "-f", "-"}, {"apply", "-f", "-"}, {"apply", "--server-side", "-f", "-"}, {"replace", "--force", "-f", "-"},
	} {
		t.Run(strings.Join(how, " "), func(t *testing.T) {
			call := newCall(s.namespace, strings.Trim(strings.Join(how, ""), "-f"))
			call.SetManagedFields(nil)
			s.create(call)
			saved := s.run("get", "toolcall", call.Name, "--output=yaml")
			if how[0] != "replace" {
				if err := s.admin.Delete(t.Context(), call); err != nil {
					t.Fatal(err)
				}
			}
			// Server-side apply takes no object that says which version it is, and create none either.
			saved = without(saved, "  resourceVersion:", "  uid:", "  creationTimestamp:", "  managedFields:")
			if said, err := s.Kubectl(saved, append([]string{"--as=alice"}, how...)...); err != nil {
				t.Fatalf("%s", said)
			}
			again := s.get(call.Name)
			if again.UID == call.UID || !again.Spec.Cancel || again.Annotations[v1alpha1.AnnotationRestored] != v1alpha1.RestoredRequester || again.RequesterName() != "alice" {
				t.Errorf("came back as %+v, %v", again.Spec, again.Annotations)
			}
		})
	}
}

// without drops lines by what they start with.
func without(text string, starts ...string) string {
	var kept []string
	for line := range strings.Lines(text) {
		drop := false
		for _, start := range starts {
			drop = drop || strings.HasPrefix(line, start)
		}
		if !drop {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// The mark can't be taken off on the way: a call that lost it, or its requester, is refused.
func TestACallThatIsChangedAfterTheStampIsRefused(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	for name, tc := range map[string]struct{ patch, refused string }{
		"cancel":    {`JSONPatch{op: "add", path: "/spec/cancel", value: false}`, "must not run again"},
		"requester": {`JSONPatch{op: "add", path: "/spec/requestedBy/username", value: "mallory"}`, "spec.requestedBy must be the user of the request"},
		"extra":     {`JSONPatch{op: "add", path: "/spec/requestedBy/extra", value: {"k": ["v"]}}`, "spec.requestedBy must be the user of the request"},
		"groups":    {`JSONPatch{op: "add", path: "/spec/requestedBy/groups", value: ["system:masters", "root"]}`, "spec.requestedBy must be the user of the request"},
	} {
		t.Run(name, func(t *testing.T) {
			s.mutateLate("zz-"+s.namespace+"-"+name, tc.patch)
			call := restored(s, func(c *v1alpha1.ToolCall) {
				c.Labels = map[string]string{"test": "zz-" + s.namespace + "-" + name}
				c.Status.Phase = v1alpha1.PhaseFailed
			})
			eventually(t, func() error {
				err := s.admin.Create(t.Context(), call.DeepCopy(), client.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					return fmt.Errorf("got %v; want an error with %q", err, tc.refused)
				}
				return nil
			})
		})
	}
}

// mutateLate has the API server change calls and sessions with a label after the project's own policy: policies come in any order, so
// that this one waits for the stamp and is asked again.
func (s *space) mutateLate(name, patch string) {
	s.t.Helper()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"test": name}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"toolcall.dev"}, APIVersions: []string{"*"}, Resources: []string{"toolcalls", "toolsessions"}},
				}}},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: "has(object.spec.requestedBy) ? [" + patch + "] : []"},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	s.create(policy, binding)
	s.t.Cleanup(func() {
		_ = s.admin.Delete(context.Background(), binding)
		_ = s.admin.Delete(context.Background(), policy)
	})
}
