package e2e

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// An object that names another requester is a call that somebody else made: it is stamped, and doesn't run.
func TestClientsCannotClaimToBeSomebodyElse(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	who, err := sp.clients.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, err)
	info := who.Status.UserInfo
	spec := shell("echo me")
	spec.RequestedBy = &v1alpha1.Requester{Username: "somebody-else", UID: "1", Groups: []string{"important"}}
	if !sp.fillsRequester {
		expectRefused(t, sp.client.Create(t.Context(), sp.newCall(spec)), "spec.requestedBy must be the user of the request")
		return
	}
	call := sp.run(t, spec)
	if call.Status.Phase != v1alpha1.PhaseCancelled || !strings.Contains(call.Status.Message, "spec.requestedBy named another user") {
		t.Errorf("it ended %s: %s", call.Status.Phase, call.Status.Message)
	}
	if by := call.Spec.RequestedBy; by.Username != info.Username || by.UID != info.UID || !slices.Equal(by.Groups, info.Groups) {
		t.Errorf("requestedBy is %+v", by)
	}
	spec.RequestedBy = &v1alpha1.Requester{Username: info.Username, Groups: []string{"important"}}
	call = sp.run(t, spec)
	expect(t, call, succeeded("me\n"))
	if by := call.Spec.RequestedBy; !slices.Equal(by.Groups, info.Groups) {
		t.Errorf("requestedBy is %+v", by)
	}
}

// agent is a ServiceAccount that may create calls in the test's namespace.
type agent struct {
	client   client.WithWatch
	username string
	groups   []string
	subject  rbacv1.Subject
}

func (sp *space) newAgent(t *testing.T, name string) *agent {
	t.Helper()
	a := &agent{
		username: "system:serviceaccount:" + sp.namespace + ":" + name,
		groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + sp.namespace, "system:authenticated"},
		subject:  rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: sp.namespace, Name: name},
	}
	a.client = sp.as(t, a.username, a.groups...)
	sp.letCreate(t, a.subject)
	return a
}

// runAs has the agent create a call.
func (sp *space) runAs(t *testing.T, a *agent, spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
	t.Helper()
	return sp.awaitFinished(t, sp.createAs(t, a, spec))
}

func (sp *space) createAs(t *testing.T, a *agent, spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
	t.Helper()
	call := sp.newCall(spec)
	sp.awaitTrue(t, "right of "+a.username+" to create calls", func(ctx context.Context) (bool, error) {
		err := a.client.Create(ctx, call)
		if apierrors.IsForbidden(err) {
			return false, nil // The binding, made a moment ago, isn't in force yet.
		}
		return err == nil, err
	})
	sp.reportOnFailure(t, call)
	return call
}

// mayUse asks the API server as the agent itself would.
func (sp *space) mayUse(t *testing.T, a *agent, tool string) bool {
	t.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: sp.namespace, Verb: "use", Group: v1alpha1.GroupVersion.Group, Resource: "tools", Name: tool,
		},
	}}
	must(t, a.client.Create(t.Context(), review))
	return review.Status.Allowed
}

func TestToolsAreARightOfTheirOwn(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	group := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers-" + sp.namespace}
	sp.allow(t, "readers", group, use("ls"))

	none, bound, member, all := sp.newAgent(t, "none"), sp.newAgent(t, "bound"), sp.newAgent(t, "member"), sp.newAgent(t, "all")
	sp.allow(t, "bound", bound.subject, use("ls", "bash", "python"))
	sp.allow(t, "all", all.subject, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"tools"}, Verbs: []string{"use"}})
	member.groups = append(member.groups, group.Name)
	member.client = sp.as(t, member.username, member.groups...)

	for name, test := range map[string]struct {
		agent *agent
		spec  v1alpha1.ToolCallSpec
		tool  string
		may   bool
	}{
		"nobody gave it a tool":                    {none, structured("ls", "-d", "/"), "ls", false},
		"its own binding names the tool":           {bound, structured("ls", "-d", "/"), "ls", true},
		"its own binding names another":            {bound, structured("cat", "/dev/null"), "cat", false},
		"a shell is the tool bash":                 {bound, shell("true"), "bash", true},
		"code is the tool of its language":         {bound, code("python", "1"), "python", true},
		"a binding of its group names it":          {member, structured("ls", "-d", "/"), "ls", true},
		"a binding of its group names no shell":    {member, shell("true"), "bash", false},
		"a binding without names allows any tool":  {all, structured("cat", "/dev/null"), "cat", true},
		"the tool of a model's call is the mapped": {bound, tool("exec", `{"mode":"structured","binary":"ls","args":["-d","/"]}`), "ls", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.runAs(t, test.agent, test.spec)
			if call.Spec.RequestedBy.Username != test.agent.username || !slices.Equal(call.Spec.RequestedBy.Groups, test.agent.groups) {
				t.Errorf("requestedBy is %+v", call.Spec.RequestedBy)
			}
			if got := sp.mayUse(t, test.agent, test.tool); got != test.may {
				t.Errorf("the API server says %t", got)
			}
			if test.may {
				if call.Status.Reason != v1alpha1.ReasonCompleted {
					t.Errorf("it ended %s: %s", call.Status.Reason, call.Status.Message)
				}
				return
			}
			expect(t, call, denied(v1alpha1.ReasonAgentNotAllowed))
			expectMessage(t, call, test.agent.username, `"`+test.tool+`"`, `verb "use"`)
		})
	}
}

// What people type to find out gives the same answer as the operator.
func TestKubectlAuthCanISaysWhatTheOperatorDecides(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	a := sp.newAgent(t, "agent")
	sp.allow(t, "agent", a.subject, use("ls"))
	for tool, may := range map[string]bool{"ls": true, "cat": false} {
		call := sp.runAs(t, a, structured(tool, "--version"))
		if got := call.Status.Reason == v1alpha1.ReasonCompleted; got != may {
			t.Errorf("call of %s ended %s", tool, call.Status.Reason)
		}
		for _, resource := range []string{"tools/" + tool, "tools.toolcall.dev/" + tool} {
			// The exit code says the same as the answer; warnings are on the other stream.
			said, err := sp.kubectl(t, "auth", "can-i", "use", resource, "--as="+a.username, "-n", sp.namespace)
			if _, isExit := err.(*exec.ExitError); err != nil && !isExit {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(said), "\n")
			if got := lines[len(lines)-1] == "yes"; got != may {
				t.Errorf("kubectl auth can-i use %s says %q, the operator %t", resource, said, may)
			}
		}
	}
}

// Without the admission policies nobody vouches for requestedBy: it is not believed. Not parallel: for a moment
// no call in the cluster has a known creator.
func TestWithoutAdmissionPoliciesTheCreatorIsUnknown(t *testing.T) {
	sp := newSpace(t)
	t.Cleanup(func() { sp.restoreAdmission(t) })
	const stamp, check = "toolcall-requested-by", "toolcall-identity"
	policies := []client.Object{&admissionv1.ValidatingAdmissionPolicyBinding{}, &admissionv1.ValidatingAdmissionPolicy{}}
	if sp.fillsRequester {
		policies = append(policies, &admissionv1.MutatingAdmissionPolicyBinding{}, &admissionv1.MutatingAdmissionPolicy{})
	}
	for _, o := range policies {
		o.SetName(check)
		switch o.(type) {
		case *admissionv1.MutatingAdmissionPolicyBinding, *admissionv1.MutatingAdmissionPolicy:
			o.SetName(stamp)
		}
		must(t, sp.client.Delete(t.Context(), o))
	}
	spoofed := shell("echo never")
	spoofed.RequestedBy = &v1alpha1.Requester{Username: "toolcall-admin", Groups: []string{"system:masters"}}
	spoofed.Trusted = true
	a := sp.newAgent(t, "liar")
	sp.awaitTrue(t, "end of the policies", func(ctx context.Context) (bool, error) {
		call := sp.newCall(spoofed)
		err := a.client.Create(ctx, call, client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil && call.Spec.RequestedBy.Username == "toolcall-admin", err
	})
	call := sp.runAs(t, a, spoofed)
	expect(t, call, denied(v1alpha1.ReasonAgentNotAllowed))
	expectMessage(t, call, "ValidatingAdmissionPolicy "+check, "config/admission")
}

// restoreAdmission puts the policies back and waits until calls have creators again: a policy is believed only
// some time after it was made.
func (sp *space) restoreAdmission(t *testing.T) {
	ctx := context.Background()
	cmd := exec.CommandContext(ctx, kubectlPath(), "apply", "--server-side", "--force-conflicts", "-k", "config/admission")
	cmd.Dir = sp.root
	// kubectl applies what the cluster serves, and fails for the rest.
	if out, err := cmd.CombinedOutput(); err != nil && sp.fillsRequester {
		t.Fatalf("put the admission policies back: %v\n%s", err, out)
	}
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		call := sp.newCall(structured("/not/a/name"))
		err := sp.client.Create(ctx, call)
		if apierrors.IsForbidden(err) {
			// One policy is in force already, the other one not yet.
			return false, nil
		}
		if err != nil {
			return false, err
		}
		err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
			err := sp.client.Get(ctx, keyOf(call), call)
			return call.Status.Phase.Terminal(), err
		})
		return call.Status.Reason == v1alpha1.ReasonBinaryNotBareName, err
	})
	if err != nil {
		t.Errorf("wait for the admission policies: %v", err)
	}
}
