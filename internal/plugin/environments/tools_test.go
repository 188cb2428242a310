package environments

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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

// Without permission to read policies, the user's own rights show all the same.
func TestToolsWithoutPolicies(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	f.Environment("repo", true)
	user := f.User([]string{"toolcall-user"}, "git")
	f.As("nobody")("tools").Expect(t, 1, "You may use: none", "you need permission to list executionenvironments", "toolcall-user")
	f.As(user)("tools").Expect(t, 0, "You may use: git", "repo yes "+f.Namespace+" ? ? ? ? ?", "note: ? stands for policies that you have no permission to read", "toolcall-policy-viewer")
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

func TestFilesThatMayBeUsed(t *testing.T) {
	t.Parallel()
	some, none := []string{"/workspace"}, []string{}
	for name, c := range map[string]struct {
		policy *v1alpha1.FilesPolicy
		rights []string
		want   string
	}{
		"both, without a policy":       {nil, []string{"file.read", "file.write"}, "read, write"},
		"no right":                     {nil, []string{"git"}, ""},
		"one right":                    {nil, []string{"file.write"}, "write"},
		"listed paths":                 {&v1alpha1.FilesPolicy{ReadPaths: some, WritePaths: some}, []string{"file.read", "file.write"}, "read, write"},
		"no path to write":             {&v1alpha1.FilesPolicy{WritePaths: none}, []string{"file.read", "file.write"}, "read"},
		"what is written can be read":  {&v1alpha1.FilesPolicy{ReadPaths: none, WritePaths: some}, []string{"file.read"}, "read"},
		"paths that are only denied":   {&v1alpha1.FilesPolicy{DeniedPaths: some}, []string{"file.read", "file.write"}, "read, write"},
		"no path at all":               {&v1alpha1.FilesPolicy{ReadPaths: none, WritePaths: none}, []string{"file.read", "file.write"}, ""},
		"no path to read but defaults": {&v1alpha1.FilesPolicy{ReadPaths: none}, []string{"file.read", "file.write"}, "read, write"},
	} {
		if got := strings.Join(usableFiles(c.policy, &cli.Rights{Names: c.rights}), ", "); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	// File tools aren't programs.
	if got := usablePrograms(nil, &cli.Rights{Names: []string{"file.read", "git"}}); got != "git" {
		t.Errorf("programs: %s", got)
	}
	if got := usablePrograms(nil, &cli.Rights{Names: []string{"file.read"}}); got != "none" {
		t.Errorf("programs: %s", got)
	}
}
