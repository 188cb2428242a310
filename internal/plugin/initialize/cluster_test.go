package initialize

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/plugin/policy"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.Main(m, Commands, "init first --agent coder")) }

// initialized runs init in a folder of its own, and returns the agent's kubeconfig.
func initialized(f *plugintest.Fixture, args ...string) (p plugintest.Printed, kubeconfig string) {
	f.T.Helper()
	kubeconfig = filepath.Join(f.T.TempDir(), "agent.kubeconfig")
	return again(f, kubeconfig, args...), kubeconfig
}

func again(f *plugintest.Fixture, kubeconfig string, args ...string) plugintest.Printed {
	f.T.Helper()
	return f.Run(append([]string{"init", f.Namespace, "--kubeconfig-out", kubeconfig}, args...)...)
}

func TestInitMakesAnAgentThatMayCreateCallsAndNothingElse(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	got, kubeconfig := initialized(f, "--agent", "coder", "--approve", "git push", "--hosts", "git.example.com")
	got.Expect(t, 0,
		"namespace/"+f.Namespace+" left as it is", "executionpolicy/"+f.Namespace+".coder created", "serviceaccount/coder created",
		"role/coder-tools created", "rolebinding/coder-tools created", "rolebinding/coder-calls created", "executionenvironment/coder created",
		"enforces no Pod Security Standard", "--clusterrole=toolcall-approver", "KUBECONFIG="+kubeconfig,
		`result = tc.run('echo "hello from $(pwd)"', environment="coder")`, `await tc.run('echo "hello from $(pwd)"', { environment: "coder" });`,
	)
	// What the API server made of the policy is still what its examples say.
	stored := &v1alpha1.ExecutionPolicy{}
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: f.Namespace + ".coder"}, stored); err != nil {
		t.Fatal(err)
	}
	if _, err := decide.CompilePolicy(stored); err != nil || len(stored.Spec.Examples) < 6 {
		t.Errorf("%d examples: %v", len(stored.Spec.Examples), err)
	}
	if e := f.ReadEnvironment("coder"); e.Spec.PolicyName() != stored.Name || e.Annotations[v1alpha1.AnnotationDefaultEnvironment] != "true" {
		t.Errorf("the environment is %+v", e)
	}
	f.AwaitRight("system:serviceaccount:"+f.Namespace+":coder", "git")
	checkRights(t, agentOf(t, kubeconfig), f.Namespace)
}

// agentOf is a client with the agent's kubeconfig, which has no other credentials.
func agentOf(t *testing.T, kubeconfig string) client.Client {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name, user := range config.AuthInfos {
		if !strings.HasPrefix(name, "system:serviceaccount:") || user.Token == "" || len(user.ClientCertificateData)+len(user.ClientKeyData) > 0 || len(config.AuthInfos) != 1 {
			t.Errorf("the kubeconfig has the user %s", name)
		}
	}
	if info, err := os.Stat(kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", info.Mode(), err)
	}
	rest, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := client.New(rest, client.Options{Scheme: apiservertest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return agent
}

// checkRights asks the API server, as the agent, what it may do.
func checkRights(t *testing.T, agent client.Client, namespace string) {
	t.Helper()
	for line, want := range map[string]bool{
		"create toolcall.dev/toolcalls": true, "get toolcall.dev/toolcalls": true, "use toolcall.dev/tools/bash": true, "use toolcall.dev/tools/python": true,
		"use toolcall.dev/tools/curl": false, "use toolcall.dev/executionpolicies/" + namespace + ".coder": false, "approve toolcall.dev/toolcalls/x": false,
		"create toolcall.dev/toolcallapprovals": false, "update toolcall.dev/executionenvironments": false, "create /pods": false, "get /secrets": false,
		"create /serviceaccounts": false, "impersonate /serviceaccounts/default": false, "create rbac.authorization.k8s.io/rolebindings": false,
	} {
		verb, rest, _ := strings.Cut(line, " ")
		group, rest, _ := strings.Cut(rest, "/")
		kind, name, _ := strings.Cut(rest, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: kind, Name: name},
		}}
		if err := agent.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != want {
			t.Errorf("the agent may %s: %t", line, review.Status.Allowed)
		}
	}
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "first"}}
	call.Spec.Shell = &v1alpha1.ShellAction{Command: firstLine}
	if err := agent.Create(t.Context(), call); err != nil || call.Spec.RequestedBy.Username != "system:serviceaccount:"+namespace+":coder" {
		t.Errorf("create a call: %v, %+v", err, call.Spec.RequestedBy)
	}
}

func TestInitCanBeRepeated(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	_, kubeconfig := initialized(f, "--agent", "coder")
	same := again(f, kubeconfig, "--agent", "coder")
	same.Expect(t, 0, "executionpolicy/"+f.Namespace+".coder unchanged", "executionenvironment/coder unchanged", "rolebinding/coder-calls unchanged")
	if strings.Contains(same.Out, "created") || strings.Contains(same.Out, " changed") {
		t.Errorf("repeated, it changes something: %s", same.Out)
	}
	again(f, kubeconfig, "--agent", "coder", "--tools", "git").Expect(t, 0, "coder changed", "role/coder-tools changed", "serviceaccount/coder unchanged", `program="git"`)
	// Somebody else's change stays, until it is to be set back.
	image := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"image": "other:1"}}`))
	if err := f.Client.Patch(t.Context(), f.ReadEnvironment("coder"), image, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	again(f, kubeconfig, "--agent", "coder", "--tools", "git").Expect(t, 1, "somebody else has changed it since", `"somebody"`, "--force-conflicts", ".spec.image")
	again(f, kubeconfig, "--agent", "coder", "--tools", "git", "--force-conflicts").Expect(t, 0, "executionenvironment/coder changed")
	if got := f.ReadEnvironment("coder").Spec.Image; got != defaultImage {
		t.Errorf("the image is %s", got)
	}
}

func TestTwoAgentsOfOneNamespace(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	initialized(f, "--agent", "first")
	got, _ := initialized(f, "--agent", "second", "--policy", "data")
	got.Expect(t, 0, "The environment first stays the default", "executionenvironment/second created", `tc.run(code="print(6 * 7)", language="python", environment="second")`)
	if f.ReadEnvironment("second").Annotations[v1alpha1.AnnotationDefaultEnvironment] != "" {
		t.Error("the namespace has two default environments")
	}
}

// What somebody else wrote stays, and then nothing is written at all.
func TestInitChangesNothingThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "coder-tools"}})
	got, kubeconfig := initialized(f, "--agent", "coder")
	got.Expect(t, 1, "role/coder-tools exists, and init didn't write it: choose another --agent, or delete it first")
	err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: f.Namespace, Name: "coder"}, &corev1.ServiceAccount{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the account was created: %v", err)
	}
	if _, err := os.Stat(kubeconfig); err == nil {
		t.Error("a kubeconfig was written")
	}
	// The account that every pod of the namespace has.
	f.Make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "theirs"}})
	got, _ = initialized(f, "--agent", "theirs")
	got.Expect(t, 1, "serviceaccount/theirs exists")
}

func TestFilesThatInitDoesNotReplace(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	_, own := initialized(f, "--agent", "coder")
	link := filepath.Join(t.TempDir(), "link")
	text := filepath.Join(t.TempDir(), "text")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(text, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{text, link, t.TempDir(), f.Kubeconfig} {
		again(f, name, "--agent", "coder").Expect(t, 1, name+" exists, and isn't the kubeconfig of system:serviceaccount:"+f.Namespace+":coder")
	}
	again(f, own, "--agent", "other").Expect(t, 1, "isn't the kubeconfig of")
	again(f, filepath.Join(text, "x"), "--agent", "coder").Expect(t, 1, "--kubeconfig-out")
	again(f, "-", "--agent", "coder").Expect(t, 0, "In a pod with the ServiceAccount coder")
}

// What is printed is complete: kubectl applies it, and init finds nothing to change after it.
func TestDryRunPrintsWhatInitApplies(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	printed := f.Run("init", f.Namespace, "--agent", "coder", "--policy", "ci", "--dry-run")
	printed.Expect(t, 0, "Nothing was written")
	policies, err := policy.Parse(strings.NewReader(printed.Out))
	if err != nil || len(policies) != 1 || strings.Contains(printed.Out, "status:") || strings.Contains(printed.Out, "null") {
		t.Fatalf("%v:\n%s", err, printed.Out)
	}
	kubectl := exec.CommandContext(t.Context(), filepath.Join(apiservertest.Assets(), "kubectl"), "--kubeconfig", f.Kubeconfig, "apply", "-f", "-")
	kubectl.Stdin = strings.NewReader(printed.Out)
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, _ := initialized(f, "--agent", "coder", "--policy", "ci")
	got.Expect(t, 0, "executionenvironment/coder")
	if strings.Contains(got.Out, "created") {
		t.Errorf("not all was printed: %s", got.Out)
	}
	if offline, errs, code := plugintest.CommandAt(plugintest.Offline(t), "init", f.Namespace, "--agent", "coder", "--policy", "ci", "--dry-run=client"); code != 0 || offline != printed.Out {
		t.Errorf("without a cluster, exit code %d: %s%s", code, offline, errs)
	}
}

func TestLinesThatInitDoesNotTake(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	for line, want := range map[string]string{
		"init":                                 "specify one namespace",
		"init a b":                             "specify one namespace",
		"init a":                               "--agent: give a name",
		"init a -n b":                          "name two namespaces",
		"init a --agent b --tools=":            `--tools "": name the tools`,
		"init a --agent b --dry-run=server":    "must be client or none",
		"init a --agent b --token-duration 1m": "must be from 10m",
		"init a --agent b --token-duration 9000h": "must be from 10m",
		"init a --agent b --kubeconfig-out=":      "--kubeconfig-out: give a name",
		"init a --agent b --kubeconfig-out -":     "read the environments of namespace a",
	} {
		if out, errs, code := plugintest.CommandAt(config, strings.Fields(line)...); code != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %s%s", line, code, out, errs)
		}
	}
}

func TestWithoutTheOperatorsKinds(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Bare["init first --agent coder"].Expect(t, 1, "this cluster lacks the kinds of the operator: install it")
	if _, err := os.Stat("coder.kubeconfig"); err == nil {
		t.Error("a kubeconfig was written")
	}
}
