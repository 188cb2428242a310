package mcpserver

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/testing/apiservertest"
)

// administrators makes the ServiceAccount administrator, and all users of a group, administrators of the cluster.
func (f *fixture) administrators() (account, group string) {
	f.t.Helper()
	f.user("administrator")
	group = "administrators-" + f.namespace
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "administrators-of-" + f.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group},
			{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "administrator"},
		},
	}
	must(f.t, f.admin.Create(f.t.Context(), binding))
	return "system:serviceaccount:" + f.namespace + ":administrator", group
}

// ask sends a request to the API server, and returns its answer.
func ask(t *testing.T, conf *rest.Config, method, path, body string) (status int, text string) {
	t.Helper()
	web, err := rest.HTTPClientFor(conf)
	must(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, conf.Host+path, strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := web.Do(r)
	must(t, err)
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(read)
}

// Who takes over the server can do with calls and sessions what administrators may, and nothing else, also not in their names.
func TestTheServerActsOnCallsAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	account, group := f.administrators()
	ours, core, streams := "/apis/toolcall.dev/v1alpha1", "/api/v1", "/apis/subresources.toolcall.dev/v1alpha1"
	in := "/namespaces/" + f.namespace
	const call = `{"apiVersion":"toolcall.dev/v1alpha1","kind":"ToolCall","metadata":{"generateName":"c-"},"spec":{"shell":{"command":"x"}}}`
	requests := []struct {
		method, path, body string
		allowed            bool
	}{
		{"POST", ours + in + "/toolcalls", call, true},
		{"GET", ours + in + "/toolcalls", "", true},
		{"GET", ours + in + "/toolcalls/none", "", true},
		{"PATCH", ours + in + "/toolsessions/none", "{}", true},
		{"GET", ours + in + "/executionenvironments", "", true},
		{"GET", ours + "/executionpolicies/none", "", true},
		{"GET", streams + in + "/toolcalls/none/log", "", true},
		{"GET", streams + in + "/toolsessions/none/proxy/files?path=/x", "", true},
		{"DELETE", ours + in + "/toolcalls/none", "", false},
		{"PUT", ours + in + "/toolcalls/none", "{}", false},
		{"PATCH", ours + in + "/toolcalls/none/status", "{}", false},
		{"POST", ours + in + "/executionenvironments", "{}", false},
		{"POST", ours + in + "/toolcallapprovals", "{}", false},
		{"GET", ours + "/executionpolicies", "", false},
		{"PUT", streams + in + "/toolsessions/none/proxy/files?path=/x", "", false},
		{"GET", core + in + "/secrets", "", false},
		{"GET", core + "/pods", "", false},
		{"POST", core + in + "/pods", "{}", false},
		{"GET", core + in + "/pods/none/exec?command=id", "", false},
		{"POST", core + in + "/serviceaccounts/administrator/token", "{}", false},
		{"POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "{}", false},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", "{}", false},
		{"GET", "/api", "", false},
	}
	for name, as := range map[string]rest.ImpersonationConfig{
		"a ServiceAccount": {UserName: account},
		"a user": {UserName: "alice", UID: "1", Groups: []string{group, "a", "b", "system:authenticated"},
			Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=1"}}},
	} {
		conf := f.own()
		conf.Impersonate = as
		for _, r := range requests {
			status, text := ask(t, conf, r.method, r.path, r.body)
			if refused := status == http.StatusForbidden && strings.Contains(text, "impersonate-on:"); refused == r.allowed {
				t.Errorf("%s %s in the name of %s: %d %s", r.method, r.path, name, status, text)
			}
		}
	}
	for _, r := range requests {
		if status, text := ask(t, f.own(), r.method, r.path, r.body); status != http.StatusForbidden && r.path != "/apis/authentication.k8s.io/v1/tokenreviews" && r.path != "/api" {
			t.Errorf("%s %s in the server's own name: %d %s", r.method, r.path, status, text)
		}
	}
}

// The server can't act for whom constrained impersonation doesn't know.
func TestForWhomTheServerCannotAct(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	account, group := f.administrators()
	for name, as := range map[string]rest.ImpersonationConfig{
		"a ServiceAccount by its UID":         {UserName: account, UID: "1"},
		"a ServiceAccount with other groups":  {UserName: account, Groups: []string{group}},
		"a member of system:masters":          {UserName: "root", Groups: []string{"system:masters"}},
		"a node":                              {UserName: "system:node:a"},
		"a user with attributes of their own": {UserName: "alice", Groups: []string{group}, Extra: map[string][]string{"example.com/tenant": {"a"}}},
	} {
		conf := f.own()
		conf.Impersonate = as
		if status, text := ask(t, conf, http.MethodGet, "/apis/toolcall.dev/v1alpha1/namespaces/"+f.namespace+"/toolcalls", ""); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// A token counts only where it is meant for.
func TestTokensForOthersAreRefused(t *testing.T) {
	t.Parallel()
	s, passes := newSite(t), newSite(t, func(e *Endpoint) { e.PassTokens = true })
	s.user("agent")
	for name, test := range map[string]struct {
		site   *site
		token  string
		status int
		says   string
	}{
		"for the server":                       {s, s.token("agent"), http.StatusOK, "serverInfo"},
		"for the API server":                   {s, s.tokenFor("agent"), http.StatusUnauthorized, "kubectl create token ACCOUNT --audience=toolcall-mcp"},
		"for another server":                   {s, s.tokenFor("agent", "another"), http.StatusUnauthorized, "isn't meant for the audience toolcall-mcp"},
		"for the API server, which it gets":    {passes, s.tokenFor("agent"), http.StatusOK, "serverInfo"},
		"for the server, with tokens passed":   {passes, s.token("agent"), http.StatusUnauthorized, "doesn't accept this token"},
		"for the server, of no ServiceAccount": {s, userToken(authenticationv1.UserInfo{Username: "alice"}), http.StatusOK, "serverInfo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, _, body := test.site.request(http.MethodPost, "/mcp/default", initialize, "Authorization", "Bearer "+test.token)
			if status != test.status || !strings.Contains(body, test.says) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

// Users that aren't ServiceAccounts have the rights of their groups, and calls say all of who they are.
func TestUsersHaveTheRightsOfTheirGroups(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operate(echo)
	group := "team-" + s.namespace
	must(t, s.admin.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "team"}, Rules: []rbacv1.PolicyRule{runsCalls()}}))
	must(t, s.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "team"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "team"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}},
	}))
	extra := map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=7"}}
	member := authenticationv1.UserInfo{Username: "alice", UID: "u-1", Groups: []string{group, "others"}, Extra: extra}
	stranger := authenticationv1.UserInfo{Username: "alice", UID: "u-2", Groups: []string{"others"}}
	if answer, result := use(t, s.session(userToken(stranger), "/mcp", ""), "run_command", fields{"command": "x"}); !answer.IsError || result.Reason != "Forbidden" {
		t.Errorf("without the group: %+v", result)
	}
	if answer, result := use(t, s.session(userToken(member), "/mcp", ""), "run_command", fields{"command": "x"}); answer.IsError {
		t.Errorf("with the group: %+v", result)
	}
	by := s.only("finished", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() }).Spec.RequestedBy
	if by == nil || by.Username != "alice" || by.UID != "u-1" || !slices.Contains(by.Groups, group) || len(by.Extra) != 1 {
		t.Errorf("requested by %+v", by)
	}
}

// Users whom headers don't carry as they are, or for whom nobody may act, are refused before anything is done in their names.
func TestUsersForWhomNobodyActs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, user := range map[string]authenticationv1.UserInfo{
		"a space after the name":       {Username: "alice "},
		"a line in the name":           {Username: "alice\nImpersonate-Group: a"},
		"a space before a group":       {Username: "alice", Groups: []string{" admins"}},
		"capitals in a key":            {Username: "alice", Extra: map[string]authenticationv1.ExtraValue{"example.com/Scope": {"read"}}},
		"a key without values":         {Username: "alice", Extra: map[string]authenticationv1.ExtraValue{"example.com/scope": {}}},
		"system:masters":               {Username: "root", Groups: []string{"system:masters"}},
		"anonymous":                    {Username: "system:anonymous"},
		"a member of the unknown":      {Username: "alice", Groups: []string{"system:unauthenticated"}},
		"no name, with an UID of ours": {UID: "1"},
	} {
		status, header, body := s.request(http.MethodPost, "/mcp", initialize, "Authorization", "Bearer "+userToken(user))
		if status != http.StatusUnauthorized || !strings.Contains(header.Get("Www-Authenticate"), "invalid_token") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	user := authenticationv1.UserInfo{Username: "system:serviceaccount:" + s.namespace + ":invented"}
	if _, result := use(t, s.session(userToken(user), "/mcp", ""), "run_command", fields{"command": "x"}); result.Reason != "Forbidden" || !strings.Contains(result.Output, "this server may not act for") {
		t.Errorf("a user with the name of a ServiceAccount: %+v", result)
	}
}

// Where the role for calls isn't bound, the answer says so.
func TestAServerThatServesOtherNamespaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	apiservertest.NewAccount(t, f.admin, client.ObjectKey{Namespace: f.namespace, Name: "server"})
	must(t, f.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "toolcall-mcp-" + f.namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-mcp"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "server"}},
	}))
	s := newSite(t, func(e *Endpoint) { e.API.BearerToken = f.tokenFor("server") })
	_, result := use(t, s.session(s.user("agent", runsCalls()), "/mcp", ""), "run_command", fields{"command": "x"})
	if result.Reason != "Forbidden" || !strings.Contains(result.Output, "bind the ClusterRole toolcall-mcp-calls") {
		t.Errorf("%+v", result)
	}
}

// The server finds out at its start whether it can act for its callers, and says what is missing.
func TestWhatKeepsTheServerFromActing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	apiservertest.NewAccount(t, f.admin, client.ObjectKey{Namespace: f.namespace, Name: "powerless"})
	powerless := f.own()
	powerless.BearerToken = f.tokenFor("powerless")
	old := apiservertest.New(t, apiservertest.Options{Configure: func(env *envtest.Environment, _ string) error {
		env.ControlPlane.GetAPIServer().Configure().Append("feature-gates", "ConstrainedImpersonation=false")
		return nil
	}})
	before := rest.AnonymousClientConfig(old.Config)
	before.BearerToken = installServer(t, old)
	for name, test := range map[string]struct {
		conf *rest.Config
		want string
	}{
		"nothing":                      {f.own(), ""},
		"an account without rights":    {powerless, "needs the ClusterRole toolcall-mcp"},
		"an API server of before 1.36": {before, "has no constrained impersonation: use Kubernetes 1.36 or newer"},
		"an invalid token":             {&rest.Config{Host: before.Host, TLSClientConfig: before.TLSClientConfig, BearerToken: "x"}, "Unauthorized"},
	} {
		reviewer, err := identity.NewImpersonator(test.conf, []string{defaultAudience})
		must(t, err)
		if err := reviewer.Check(t.Context()); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// installServer creates the account of config/mcp and its rights, and returns a token of it.
func installServer(t *testing.T, s *apiservertest.Server) string {
	t.Helper()
	admin := s.Admin(t)
	objects, err := apiservertest.Manifests("mcp/service_account.yaml", "mcp/rbac.yaml")
	must(t, err)
	must(t, admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "toolcall-system"}}))
	for _, o := range objects {
		must(t, admin.Create(t.Context(), o))
	}
	return apiservertest.TokenOf(t, admin, client.ObjectKey{Namespace: "toolcall-system", Name: "toolcall-mcp"})
}

// An administrator isn't asked for a right where something else refuses a request, such as a quota.
func TestAMissingRightIsToldApart(t *testing.T) {
	t.Parallel()
	who := &identity.Requester{User: "agent", Namespace: "agents"}
	for why, isRight := range map[string]bool{
		`User "agent" cannot create resource "toolcalls" in API group "toolcall.dev" in the namespace "agents"`: true,
		"exceeded quota: team, requested: count/toolcalls.toolcall.dev=1, used: 9, limited: 9":                  false,
		"unable to create new content in namespace agents because it is being terminated":                       false,
	} {
		got := explain(who, apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "toolcalls"}, "c", errors.New(why)))
		if strings.Contains(got, "has no permission") != isRight || !strings.Contains(got, why) {
			t.Errorf("%q is told as %q", why, got)
		}
	}
}
