package e2e

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

// What check says is what becomes of the call, for someone with the shipped roles and nothing more.
func TestPluginCheckAgreesWithWhatHappens(t *testing.T) {
	t.Parallel()
	sp := newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementName, Allowed: []string{"ls", "cat", "env"}}
		p.Shell = &v1alpha1.ShellPolicy{Enabled: ptr.To(true), Commands: v1alpha1.ShellAllowlisted}
	})
	user := sp.restrictedUser(t)
	for name, args := range map[string][]string{
		"a listed program":                {"--", "ls", "/"},
		"a program that isn't listed":     {"--", "id"},
		"one that may not be used":        {"--", "cat", "/etc/hostname"},
		"a metacharacter":                 {"--", "ls", "$HOME"},
		"a shell line":                    {"--shell", "ls | ls"},
		"a shell line of something else":  {"--shell", "ls | id"},
		"code":                            {"--code", "python", "-f", "-"},
		"a protected variable":            {"-e", "PATH=/tmp", "--", "ls"},
		"a variable":                      {"-e", "FOO=bar", "--", "ls"},
		"an environment that isn't there": {"--environment", "nowhere", "--", "ls"},
		"a skill that isn't there":        {"--skill", "none", "--", "ls"},
		"a tool that nobody knows":        {"--tool", "teleport"},
		"trust":                           {"--trusted", "--", "ls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			as := append([]string{"--as", user}, args...)
			checked := sp.plugin(t, "print(1)", append([]string{"check"}, as...)...)
			ran := sp.plugin(t, "print(1)", append([]string{"run"}, as...)...)
			if checked.code != ran.code {
				t.Errorf("check exits %d, run %d\n%s%s\n%s%s", checked.code, ran.code, checked.out, checked.err, ran.out, ran.err)
			}
			if _, reason, ok := strings.Cut(ran.err, "("); ok && ran.code == 126 {
				reason, _, _ = strings.Cut(reason, ")")
				if !strings.Contains(checked.out, reason) {
					t.Errorf("check doesn't say %s: %s", reason, checked.out)
				}
			}
		})
	}
}

// restrictedUser has toolcall-user in the namespace, and may use some tools.
func (sp *space) restrictedUser(t *testing.T) string {
	t.Helper()
	user := "plugin-" + sp.namespace
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
	sp.letCreate(t, subject)
	sp.allow(t, "plugin-tools", subject, use("ls", "id", "env", "bash"))
	sp.awaitTrue(t, "rights of "+user, func(context.Context) (bool, error) {
		return sp.plugin(t, "", "check", "--as", user, "--", "ls").code == 0, nil
	})
	return user
}

// toolcall-user is enough to run, follow and cancel calls, and what is missing is named.
func TestPluginWithTheShippedRoleAlone(t *testing.T) {
	full.Only(t, "test/api has the roles")
	t.Parallel()
	sp := newSpace(t)
	user := "plain-" + sp.namespace
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
	expectSaid(t, sp.plugin(t, "", "run", "--as", user, "--", "ls"), 125, "", "the ClusterRole toolcall-user grants permission")
	sp.letCreate(t, subject)
	sp.allow(t, "plain-tools", subject, use("bash"))
	sp.awaitTrue(t, "rights of "+user, func(context.Context) (bool, error) {
		return sp.plugin(t, "", "run", "--as", user, "--shell", "true").code == 0, nil
	})
	lines, _, exit := sp.follower(t, "run", "--as", user, "--name", "plain", "--shell", "echo live; "+held+"; echo end")
	if got := nextLine(t, lines); got != "live" {
		t.Errorf("got %q", got)
	}
	expectSaid(t, sp.plugin(t, "", "logs", "--as", user, "plain"), 0, "live\n", "")
	expectSaid(t, sp.plugin(t, "", "cancel", "--as", user, "plain"), 0, "plain: cancellation requested\n", "")
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "note:") {
			t.Error(lines.Text())
		}
	}
	if code := exit(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	// Nobody needs permission to read policies to learn what they say of a call.
	got := sp.plugin(t, "", "check", "--as", user, "--shell", "true")
	if got.code != 0 || !strings.Contains(got.out, "bash, which you may use") || !strings.Contains(got.out, sp.policy) {
		t.Errorf("check: %+v", got)
	}
}

func TestPluginExplainsADenial(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	ran := sp.plugin(t, "", "run", "--name", "no", "--", "ls", "a;b")
	if ran.code != 126 || !strings.Contains(ran.err, "ArgumentNotAllowed") {
		t.Fatalf("run: %+v", ran)
	}
	got := sp.plugin(t, "", "explain-denial", "no")
	for _, want := range []string{"ArgumentNotAllowed", "spec.arguments.metacharacters", "--shell", sp.policy + ", of environment " + defaultEnv, "denied for the same reason"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q isn't in %s%s", want, got.out, got.err)
		}
	}
	policy := &v1alpha1.ExecutionPolicy{}
	must(t, sp.client.Get(t.Context(), keyOf(&v1alpha1.ExecutionPolicy{ObjectMeta: objectMeta("", sp.policy)}), policy))
	metacharactersAllowed(&policy.Spec)
	must(t, sp.client.Update(t.Context(), policy))
	if got = sp.plugin(t, "", "explain-denial", "no"); !strings.Contains(got.out, "the same call from you would be allowed") {
		t.Errorf("after the policy changed: %+v", got)
	}
	sp.plugin(t, "", "run", "--name", "yes", "--", "true")
	expectSaid(t, sp.plugin(t, "", "explain-denial", "yes"), 1, "", "was not denied, its phase is Succeeded")
}
