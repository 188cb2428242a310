package environments

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// tools shows the user's own rights, and of each environment what they and its policy allow together.
func TestTools(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Run("tools").Expect(t, 0, "You may use: any tool", "No environments are shown of namespace "+f.Namespace)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git", "/opt/bin/"}}
		p.Code = &v1alpha1.CodePolicy{Languages: []string{"python", "ruby"}}
	})
	f.Environment("repo", true)
	f.Make(&v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace + "-open"}, Spec: v1alpha1.ExecutionPolicySpec{
		Access: v1alpha1.AccessOpen, Code: &v1alpha1.CodePolicy{Enabled: ptr.To(false)},
	}}, &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "open"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "i", PolicyRef: &v1alpha1.PolicyReference{Name: f.Namespace + "-open"}},
	}, &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "strange"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "i", PolicyRef: &v1alpha1.PolicyReference{Name: "no-such-policy"}},
	})
	user := f.User([]string{"toolcall-user", "toolcall-policy-viewer"}, "git", "ruby", "cat", "/opt/bin/x", "file.read")
	got := f.Run("tools", "--as", user)
	got.Expect(t, 0, "You may use: /opt/bin/x, cat, file.read, git, ruby", "note: environment strange is not ready: InvalidPolicy")
	found := plugintest.Rows(got.Out)
	for name, want := range map[string]string{
		"ENVIRONMENT": "ENVIRONMENT DEFAULT POLICY ACCESS PROGRAMS SHELL CODE FILES",
		"repo":        "repo yes " + f.Namespace + " RBAC git, /opt/bin/ no ruby read",
		"open":        "open - " + f.Namespace + "-open Open any no - read, write",
		"strange":     "strange - no-such-policy ? none no - -",
	} {
		if found[name] != want {
			t.Errorf("the row of %s is %q, not %q", name, found[name], want)
		}
	}
	f.Run("tools", "--as", user, "-o", "name").Expect(t, 0, "tool.cli.toolcall.dev/cat tool.cli.toolcall.dev/file.read tool.cli.toolcall.dev/git")
	report := f.Run("tools", "--as", user, "-o", "json")
	var object struct {
		Kind         string
		Rights       cli.Rights
		Environments []environmentTools
	}
	if err := json.Unmarshal([]byte(report.Out), &object); err != nil || object.Kind != "ToolRights" || object.Rights.AnyTool || len(object.Rights.Names) != 5 || len(object.Environments) != 3 {
		t.Errorf("%v: %+v", err, object)
	}
}

// Nobody needs permission to read policies. Without that to list environments, the user's own rights show all the same.
func TestToolsWithoutPolicies(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	f.Environment("repo", true)
	user := f.User([]string{"toolcall-user"}, "git")
	f.As("nobody")("tools").Expect(t, 1, "You may use: none", "you need permission to list executionenvironments", "toolcall-user")
	f.As(user)("tools").Expect(t, 0, "You may use: git", "repo yes "+f.Namespace+" RBAC git no - -")
}

// Where the policy lists no program, one review tells whether the user's own may run, also if a rule denies that one.
func TestToolsOfAPolicyThatListsNoProgram(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Rules = []v1alpha1.PolicyRule{{Name: "no-awk", Effect: v1alpha1.RuleDeny, Message: "no awk", Expression: "action.commands.exists(c, c.name == 'awk')"}}
	})
	f.Environment("repo", true)
	f.Make(&v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace + "-none"}, Spec: v1alpha1.ExecutionPolicySpec{
		Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced},
	}}, &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "strict"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "i", PolicyRef: &v1alpha1.PolicyReference{Name: f.Namespace + "-none"}},
	})
	user := f.User([]string{"toolcall-user"}, "/opt/tool", "awk", "git")
	var reviews atomic.Int32
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/toolcallreviews") {
			reviews.Add(1)
		}
		next.ServeHTTP(w, r)
	})
	out, errs, code := plugintest.CommandAt(config, "-n", f.Namespace, "tools", "--as", user)
	found := plugintest.Rows(out)
	if code != 0 || !strings.Contains(found["repo"], " RBAC awk, git no ") || !strings.Contains(found["strict"], " RBAC none no ") || reviews.Load() > 12 {
		t.Errorf("exit code %d, %d reviews\n%s%s", code, reviews.Load(), out, errs)
	}
}

// Where an authorizer can't list rights, the tools of the policies are asked for one by one.
func TestToolsOfAnIncompleteList(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git"}}
	})
	f.Environment("repo", true)
	user := f.User([]string{"toolcall-user", "toolcall-policy-viewer"}, "git", "cat", "file.write")
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/selfsubjectrulesreviews") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "status": {"incomplete": true, "resourceRules": [], "nonResourceRules": []}}`))
			return
		}
		next.ServeHTTP(w, r)
	})
	out, errs, code := plugintest.CommandAt(config, "-n", f.Namespace, "tools", "--as", user)
	if text := strings.Join(strings.Fields(out), " "); code != 0 || !strings.Contains(text, "You may use: file.write, git, and perhaps others: the cluster doesn't list all rights") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
}

func TestRulesThatGrantTools(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	user := f.Namespace + "-everything"
	f.Make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "everything"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "everything"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "everything"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	f.AwaitRight(user, "anything")
	f.Run("tools", "--as", user).Expect(t, 0, "You may use: any tool")
}

func TestWhatThePolicyAndRightsAllowTogether(t *testing.T) {
	t.Parallel()
	some, none := []string{"/workspace"}, []string{}
	files := func(read, write []string) *subresourcesv1alpha1.ToolCallReviewStatus {
		return &subresourcesv1alpha1.ToolCallReviewStatus{Allowed: true, InEffect: &subresourcesv1alpha1.ReviewInEffect{ReadPaths: read, WritePaths: write}}
	}
	denied := &subresourcesv1alpha1.ToolCallReviewStatus{Denial: &subresourcesv1alpha1.ReviewDenial{Reason: v1alpha1.ReasonAgentNotAllowed}}
	for name, c := range map[string]struct {
		read, write *subresourcesv1alpha1.ToolCallReviewStatus
		want        string
	}{
		"no list":                     {files(nil, nil), files(nil, nil), "read, write"},
		"no right":                    {denied, denied, ""},
		"one right":                   {denied, files(nil, nil), "write"},
		"listed paths":                {files(some, some), files(some, some), "read, write"},
		"no path to write":            {files(nil, none), files(nil, none), "read"},
		"no path at all":              {files(none, none), files(none, none), ""},
		"no path to read but default": {files(none, nil), files(none, nil), "read, write"},
	} {
		p := &probe{read: c.read, write: c.write}
		if got := strings.Join(p.files(), ", "); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
