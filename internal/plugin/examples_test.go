package plugin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// notHere are commands whose examples need the files of a session's pod, a person's screen, or a call that waits for a person: test/e2e
// runs cp, artifacts, attach and approve on a node.
var notHere = map[string]bool{"cp": true, "artifacts": true, "attach": true, "approve": true}

// exitsOtherwise are lines that exit with another code than 0, and why.
var exitsOtherwise = map[string]int{
	"kubectl toolcall doctor":         1, // The API server of the tests has no operator.
	"kubectl toolcall doctor -A":      1,
	"kubectl toolcall doctor -o json": 1,
	"kubectl toolcall get --watch":    124, // It is stopped by timeout.
}

// Every example of every command's help does what it says: it runs in a shell, against a real API server.
func TestExamples(t *testing.T) {
	t.Parallel()
	ran := 0
	for name, c := range allCommands() {
		if notHere[name] {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := plugintest.New(t)
			shell := prepareExamples(f, name, c.Example)
			for line := range strings.Lines(c.Example) {
				if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				out, code := shell.run(t, line)
				if code != exitsOtherwise[line] {
					t.Errorf("$ %s\nexits with %d:\n%s", line, code, out)
				}
			}
		})
	}
	if ran < 25 {
		t.Errorf("the examples of only %d commands ran", ran)
	}
}

// exampleShell runs lines of examples.
type exampleShell struct {
	folder, kubeconfig, program string
}

// prepareExamples makes what the examples name, unless the example makes it itself.
func prepareExamples(f *plugintest.Fixture, name, example string) *exampleShell {
	f.T.Helper()
	f.Policy()
	f.Environment("tools", true)
	f.Environment("repo", false)
	f.ObeySessions()
	if name != "session start" {
		f.ReadySession("dev", plugintest.OnVolume)
	}
	for _, call := range []string{"nightly", "first", "second", "denied"} {
		if name == "run" && call == "nightly" {
			continue
		}
		f.Run("run", "--detach", "--name", call, "-l", "team=search,job=nightly", "--", "ls").Expect(f.T, 0)
		f.End(call, plugintest.WithOutput(plugintest.Succeeded(), "out\n", ""))
	}
	if name == "explain-denial" {
		f.Deny("run-x7k2m9p4", v1alpha1.ReasonShellDisabled, "--shell", "ls")
	}
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		switch {
		case call.Spec.Background && call.Status.Phase == "":
			return plugintest.Running("pod")
		case call.Spec.Background:
			return nil
		}
		return plugintest.Finished(plugintest.WithOutput(plugintest.Succeeded(), "out\n", ""))
	})
	if strings.Contains(example, "agents") {
		prepareAgents(f)
	}
	return newExampleShell(f)
}

// prepareAgents makes the namespace and the rights of the agent that examples name.
func prepareAgents(f *plugintest.Fixture) {
	f.T.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "agents"}}
	if err := f.Client.Create(f.T.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		f.T.Fatal(err)
	}
	agent := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "agents", Name: "agent"}}
	f.Make(
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "agent"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"toolcall.dev"}, Resources: []string{"tools"}, Verbs: []string{"use"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "agent"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent"}, Subjects: agent},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "agent-user"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-user"}, Subjects: agent},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace + "-agent"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-policy-viewer"}, Subjects: agent},
	)
	f.AwaitRight("system:serviceaccount:agents:agent", "git")
}

// examplePolicy is a policy with an example.
const examplePolicy = `apiVersion: toolcall.dev/v1alpha1
kind: ExecutionPolicy
metadata: {name: tools}
spec:
  examples:
  - {name: list, call: {structured: {binary: ls}}, expect: Allow}
`

// newExampleShell has a folder with the files that examples name, and a kubeconfig of the namespace.
func newExampleShell(f *plugintest.Fixture) *exampleShell {
	f.T.Helper()
	folder := f.T.TempDir()
	configuration, err := os.ReadFile("../convert/testdata/all.toml")
	if err != nil {
		f.T.Fatal(err)
	}
	for name, content := range map[string]string{
		"script.py": "print(1)\n", "access.log": "line\n", "commands.txt": "ls\npwd\n", "agent.toml": string(configuration),
		"policy.yaml": examplePolicy, "new/policy.yaml": examplePolicy,
		"stricter.yaml": "apiVersion: toolcall.dev/v1alpha1\nkind: ExecutionPolicy\nmetadata: {name: stricter}\nspec: {binaries: {mode: Enforced, allowed: [git]}}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700); err != nil {
			f.T.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			f.T.Fatal(err)
		}
	}
	config, err := clientcmd.LoadFromFile(f.Kubeconfig)
	if err != nil {
		f.T.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = f.Namespace
	kubeconfig := filepath.Join(f.T.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		f.T.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		f.T.Fatal(err)
	}
	return &exampleShell{folder, kubeconfig, program}
}

// run runs one line, where "kubectl toolcall" is this program and kubectl itself the real one.
func (s *exampleShell) run(t *testing.T, line string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.TestTimeout)
	defer cancel()
	const functions = `kubectl() { if [ "$1" = toolcall ]; then shift; $LIMIT env ` + asPlugin + `=1 "$PROGRAM" "$@"; else "$KUBEBUILDER_ASSETS/kubectl" "$@"; fi; }` + "\n"
	command := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", functions+line)
	command.Dir, command.WaitDelay = s.folder, 5*time.Second
	limit := ""
	if strings.HasSuffix(line, "--watch") {
		limit = "timeout 3"
	}
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "PROGRAM="+s.program, "LIMIT="+limit)
	raw, err := command.CombinedOutput()
	if err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	return string(raw), command.ProcessState.ExitCode()
}

// The page for reference names every example's command, so that no command is without documentation.
func TestEveryCommandIsOnThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range allCommands() {
		words := strings.Fields(name)
		if !strings.Contains(string(page), "toolcall "+name) && !strings.Contains(string(page), "`"+words[len(words)-1]+"`") && !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/kubectl.md doesn't name %s", name)
		}
	}
}
