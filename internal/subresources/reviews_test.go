package subresources_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
)

// office is a space with a default environment under a policy, and an agent who may use ls and create calls.
func office(t *testing.T) *space {
	t.Helper()
	s := newSpace(t)
	s.makePolicy(s.namespace, v1alpha1.ExecutionPolicySpec{Binaries: &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git"}}})
	env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: "repo", Annotations: map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"},
	}}
	env.Spec = v1alpha1.ExecutionEnvironmentSpec{
		Image: "example.com/tools:1", PolicyRef: &v1alpha1.PolicyReference{Name: s.namespace}, Env: []v1alpha1.EnvVar{{Name: "TOKEN", Value: "private"}},
	}
	if err := s.admin.Create(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	s.bind("agent", "toolcall-user")
	s.grant("agent", "use", "toolcall.dev/tools", "ls")
	return s
}

func (s *space) makePolicy(name string, spec v1alpha1.ExecutionPolicySpec) {
	s.t.Helper()
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if err := s.admin.Create(s.t.Context(), policy); err != nil {
		s.t.Fatal(err)
	}
}

// grantEverywhere gives a user a verb on a resource of the whole cluster.
func (s *space) grantEverywhere(user, verb, group, resource string, names ...string) {
	s.t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: s.namespace + "-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}},
	}
	if err := s.admin.Create(s.t.Context(), role); err != nil {
		s.t.Fatal(err)
	}
	s.run("create", "clusterrolebinding", role.Name, "--clusterrole="+role.Name, "--user="+user)
}

// review asks as a user.
func (s *space) review(user string, spec subresourcesv1alpha1.ToolCallReviewSpec) (*subresourcesv1alpha1.ToolCallReviewStatus, error) {
	s.t.Helper()
	review := &subresourcesv1alpha1.ToolCallReview{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace}, Spec: spec}
	err := s.clientOf(user).Create(s.t.Context(), review, client.FieldValidation(metav1.FieldValidationStrict))
	return &review.Status, err
}

// expectVerdict waits until a review is answered so: rights take a moment to be in force. An empty reason stands for allowed.
func (s *space) expectVerdict(user string, spec subresourcesv1alpha1.ToolCallReviewSpec, reason string) (status *subresourcesv1alpha1.ToolCallReviewStatus) {
	s.t.Helper()
	eventually(s.t, func() (err error) {
		if status, err = s.review(user, spec); err != nil {
			return err
		}
		got := ""
		if status.Denial != nil {
			got = status.Denial.Reason
		}
		if status.Allowed != (reason == "") || got != reason {
			return fmt.Errorf("%s: got %+v, %+v, want %q", user, status, status.Denial, reason)
		}
		return nil
	})
	return status
}

// expectRefused waits until a review fails so.
func (s *space) expectRefused(user string, spec subresourcesv1alpha1.ToolCallReviewSpec, is func(error) bool, says string) {
	s.t.Helper()
	eventually(s.t, func() error {
		if _, err := s.review(user, spec); err == nil || !is(err) || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("%s: got %w, want %q", user, errors.Join(err), says)
		}
		return nil
	})
}

func running(binary string) subresourcesv1alpha1.ToolCallReviewSpec {
	return subresourcesv1alpha1.ToolCallReviewSpec{Call: v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: binary}}}
}

func TestAReviewSaysWhetherACallWouldRun(t *testing.T) {
	s := office(t)
	status := s.expectVerdict("agent", running("ls"), "")
	e := status.InEffect
	if status.Requester != "agent" || status.Tool != "ls" || !ptr.Deref(status.MayUse, false) || status.Environment != "repo" || status.Policy != s.namespace ||
		e == nil || ptr.Deref(e.TimeoutMilliseconds, 0) != 120_000 || e.Network.Held != v1alpha1.HeldNetworkHeld || !e.Network.IsOpen {
		t.Errorf("got %+v, %+v", status, e)
	}
	found := false
	for _, v := range e.Variables {
		found = found || v.Name == "TOKEN" && v.Source == v1alpha1.EnvSourceDefault
	}
	if text := fmt.Sprintf("%+v %+v", *status, *e); !found || strings.Contains(text, "private") {
		t.Errorf("the variables are %+v in %s", e.Variables, text)
	}
	denied := s.expectVerdict("agent", running("git"), v1alpha1.ReasonAgentNotAllowed)
	if d := denied.Denial; d.Phase != v1alpha1.PhaseDenied || d.Rule == "" || d.RequesterCan == "" || !strings.Contains(d.Message, `"agent" may not use the tool "git"`) || denied.InEffect != nil {
		t.Errorf("got %+v", d)
	}
	elsewhere := running("ls")
	elsewhere.Call.EnvironmentRef = &v1alpha1.LocalReference{Name: "none"}
	if d := s.expectVerdict("agent", elsewhere, v1alpha1.ReasonEnvironmentNotFound).Denial; d.Phase != v1alpha1.PhaseFailed {
		t.Errorf("got %+v", d)
	}
	// What a client says about the requester doesn't count.
	forged := running("git")
	forged.Call.RequestedBy = &v1alpha1.Requester{Username: "root", Groups: []string{"system:masters"}}
	s.expectVerdict("agent", forged, v1alpha1.ReasonAgentNotAllowed)
	trusted := running("ls")
	trusted.Call.Trusted = true
	s.expectRefused("agent", trusted, apierrors.IsForbidden, `may "trust" executionenvironments`)
	calls := &v1alpha1.ToolCallList{}
	if err := s.admin.List(t.Context(), calls, client.InNamespace(s.namespace)); err != nil || len(calls.Items) != 0 {
		t.Errorf("there are %d calls, %v", len(calls.Items), err)
	}
}

func TestAReviewNeedsRights(t *testing.T) {
	s := office(t)
	s.grant("reviewer", "create", "subresources.toolcall.dev/toolcallreviews")
	s.grant("caller", "create", "toolcall.dev/toolcalls")
	s.bind("viewer", "toolcall-viewer")
	s.expectRefused("reviewer", running("ls"), apierrors.IsForbidden, "a review needs the right to create the call")
	s.expectRefused("caller", running("ls"), apierrors.IsForbidden, `cannot create resource "toolcallreviews"`)
	s.expectRefused("viewer", running("ls"), apierrors.IsForbidden, `cannot create resource "toolcallreviews"`)
}

func TestAReviewForAnotherUser(t *testing.T) {
	s := office(t)
	s.bind("clerk", "toolcall-user")
	of := func(user v1alpha1.Requester) subresourcesv1alpha1.ToolCallReviewSpec {
		spec := running("ls")
		spec.User = &user
		return spec
	}
	agent := v1alpha1.Requester{Username: "agent"}
	// The clerk may not use ls, and the agent may.
	s.expectVerdict("clerk", running("ls"), v1alpha1.ReasonAgentNotAllowed)
	s.expectRefused("clerk", of(agent), apierrors.IsForbidden, "the right to impersonate the user")
	s.grantEverywhere("clerk", "impersonate", "", "users", "agent", "nobody")
	if got := s.expectVerdict("clerk", of(agent), "").Requester; got != "agent" {
		t.Errorf("the call is reviewed for %q", got)
	}
	for what, user := range map[string]v1alpha1.Requester{
		`groups "masters"`:            {Username: "agent", Groups: []string{"masters"}},
		`uids.authentication.k8s.io`:  {Username: "agent", UID: "1"},
		`userextras.authentication`:   {Username: "agent", Extra: map[string]v1alpha1.ExtraValue{"scopes": {"all"}}},
		`users "root"`:                {Username: "root"},
		`serviceaccounts "bot"`:       {Username: "system:serviceaccount:" + s.namespace + ":bot"},
		"a review needs the right to": {Username: "nobody"},
	} {
		s.expectRefused("clerk", of(user), apierrors.IsForbidden, what)
	}
	s.expectRefused("clerk", of(v1alpha1.Requester{Groups: []string{"masters"}}), apierrors.IsBadRequest, "username is missing")
	s.expectRefused("clerk", of(v1alpha1.Requester{Username: "agent", Groups: make([]string, 129)}), apierrors.IsBadRequest, "129 groups and extra values")
	s.grantEverywhere("clerk", "impersonate", "", "groups", "masters")
	s.grantEverywhere("clerk", "impersonate", "authentication.k8s.io", "uids", "1")
	s.grantEverywhere("clerk", "impersonate", "authentication.k8s.io", "userextras/scopes", "all")
	s.expectVerdict("clerk", of(v1alpha1.Requester{
		Username: "agent", UID: "1", Groups: []string{"masters"}, Extra: map[string]v1alpha1.ExtraValue{"scopes": {"all"}},
	}), "")
}

func TestAReviewUnderAnotherPolicy(t *testing.T) {
	s := office(t)
	other := s.namespace + "-other"
	s.makePolicy(other, v1alpha1.ExecutionPolicySpec{Binaries: &v1alpha1.BinariesPolicy{Allowed: []string{"cat"}}})
	named, absent, inline, both, bad := running("ls"), running("ls"), running("ls"), running("ls"), running("ls")
	named.PolicyName, absent.PolicyName, both.PolicyName = other, other+"-none", other
	inline.Policy = &v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Binaries: &v1alpha1.BinariesPolicy{Allowed: []string{"cat"}}}
	both.Policy = inline.Policy
	bad.Policy = &v1alpha1.ExecutionPolicySpec{Access: "Anybody"}
	s.expectVerdict("agent", running("ls"), "")
	s.expectRefused("agent", named, apierrors.IsForbidden, `the verb "use" or "get"`)
	s.expectRefused("agent", absent, apierrors.IsForbidden, `the verb "use" or "get"`)
	s.expectRefused("agent", inline, apierrors.IsForbidden, "the right to create executionpolicies")
	s.expectRefused("agent", both, apierrors.IsBadRequest, "exclude each other")
	s.grantEverywhere("agent", "use", "toolcall.dev", "executionpolicies", other, other+"-none")
	if got := s.expectVerdict("agent", named, v1alpha1.ReasonBinaryNotAllowed).Policy; got != other {
		t.Errorf("the policy in effect is %q", got)
	}
	s.expectRefused("agent", absent, apierrors.IsNotFound, other+"-none")
	s.bind("reader", "toolcall-user")
	s.grantEverywhere("reader", "get", "toolcall.dev", "executionpolicies")
	s.expectVerdict("reader", named, v1alpha1.ReasonAgentNotAllowed)
	s.grantEverywhere("agent", "create", "toolcall.dev", "executionpolicies")
	s.expectVerdict("agent", inline, v1alpha1.ReasonBinaryNotAllowed)
	s.expectVerdict("agent", bad, v1alpha1.ReasonInvalidPolicy)
	// An inline policy is nobody else's.
	s.expectVerdict("agent", running("ls"), "")
}

// A session that hasn't begun is reviewed with what it would begin with, for those who may use it.
func TestAReviewInASession(t *testing.T) {
	s := office(t)
	s.bind("owner", "toolcall-user")
	s.grant("owner", "use", "toolcall.dev/tools", "ls")
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "dev"}}
	session.Spec.WorkingDir = "/workspace/x"
	owner := s.clientOf("owner")
	eventually(t, func() error { return owner.Create(t.Context(), session) })
	spec := running("ls")
	spec.Call.SessionRef = &v1alpha1.SessionReference{Name: "dev"}
	if got := s.expectVerdict("owner", spec, "").InEffect.WorkingDir; got != "/workspace/x" {
		t.Errorf("the directory is %q", got)
	}
	other := s.expectVerdict("agent", spec, v1alpha1.ReasonSessionNotAllowed)
	if other.Environment != "" || other.InEffect != nil {
		t.Errorf("it is said of somebody else's session: %+v", other)
	}
	spec.Call.SessionRef.Name = "none"
	s.expectVerdict("owner", spec, v1alpha1.ReasonSessionNotFound)
}

// post sends a body as it is, as JSON if there is no other kind.
func (s *space) post(config *rest.Config, query string, body io.Reader, kind ...string) *http.Response {
	s.t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	path := strings.TrimSuffix(config.Host, "/") + "/apis/subresources.toolcall.dev/v1alpha1/namespaces/" + s.namespace + "/toolcallreviews" + query
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if r.Header.Set("Content-Type", "application/json"); len(kind) > 0 {
		r.Header.Set("Content-Type", kind[0])
	}
	response, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func TestAReviewThatCannotBeRead(t *testing.T) {
	s := office(t)
	s.expectVerdict("agent", running("ls"), "")
	const head = `{"apiVersion": "subresources.toolcall.dev/v1alpha1", "kind": "ToolCallReview", "spec": {"call": `
	large := head + `{"stdin": "` + strings.Repeat("x", 2<<20) + `"}}}`
	for name, c := range map[string]struct {
		query, body string
		code        int
		says        string
	}{
		"too large":         {"", large, http.StatusRequestEntityTooLarge, "limit is 1572864"},
		"not JSON":          {"", `{"spec": `, http.StatusBadRequest, ""},
		"empty":             {"", "", http.StatusBadRequest, ""},
		"another kind":      {"", `{"apiVersion": "toolcall.dev/v1alpha1", "kind": "ToolCall"}`, http.StatusBadRequest, ""},
		"a wrong type":      {"", head + `{"structured": "ls"}}}`, http.StatusBadRequest, ""},
		"an unknown field":  {"?fieldValidation=Strict", head + `{"shel": {"command": "ls"}}}}`, http.StatusBadRequest, `unknown field "spec.call.shel"`},
		"another namespace": {"", `{"metadata": {"namespace": "default"}, "spec": {"call": {}}}`, http.StatusBadRequest, "namespace"},
	} {
		status := statusOf(t, s.post(s.as("agent"), c.query, strings.NewReader(c.body)))
		if int(status.Code) != c.code || !strings.Contains(status.Message, c.says) {
			t.Errorf("%s: %d, %s", name, status.Code, status.Message)
		}
	}
	// What takes far more memory than it has bytes isn't decoded.
	for _, kind := range []string{"application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "text/plain", "application/json/"} {
		if r := s.post(s.as("agent"), "", strings.NewReader("a: &a [x]"), kind); r.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %d", kind, r.StatusCode)
		}
	}
	examples := head + `{}, "policy": {"examples": [{}` + strings.Repeat(",{}", 100_000) + `]}}}`
	if r := s.post(s.as("agent"), "", strings.NewReader(examples)); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("many values: %d", r.StatusCode)
	}
	braces := head + `{"shell": {"command": "` + strings.Repeat(`{,[\"`, 100_000) + `"}}}}`
	if r := s.post(s.as("agent"), "", strings.NewReader(braces), "application/json; charset=utf-8"); r.StatusCode != http.StatusCreated {
		t.Errorf("a long text: %d: %s", r.StatusCode, body(t, r))
	}
	// Without strictness, an unknown field is a warning, as with all of Kubernetes' APIs, and a call without an action is denied.
	r := s.post(s.as("agent"), "", bytes.NewBufferString(head+`{"shel": {"command": "ls"}}}}`))
	if text := string(body(t, r)); r.StatusCode != http.StatusCreated || !strings.Contains(r.Header.Get("Warning"), "spec.call.shel") || !strings.Contains(text, v1alpha1.ReasonInvalidArguments) {
		t.Errorf("%d, %q: %s", r.StatusCode, r.Header.Get("Warning"), text)
	}
	// There is nothing to get.
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		path := "/apis/subresources.toolcall.dev/v1alpha1/namespaces/" + s.namespace + "/toolcallreviews/x"
		if r := s.ask(s.Config, method, path); r.StatusCode != http.StatusNotFound && r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, r.StatusCode)
		}
	}
	if said := s.run("api-resources", "--api-group=subresources.toolcall.dev", "--no-headers"); !strings.Contains(said, "ToolCallReview") {
		t.Errorf("kubectl lists %s", said)
	}
}
