// Package install tests that the operator can be installed, upgraded and removed, on a real cluster, and that
// nothing is left of it then. It takes the installed operator away and puts it back: nothing else may use the cluster
// meanwhile.
package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/built"
	"toolcall.dev/operator/test/internal/overlay"
)

const (
	system   = "toolcall-system"
	operator = "toolcall-operator"
	agents   = "install-test"
	outside  = "install-test-outside"
	patience = 2 * time.Minute
)

// bench is the cluster, and the project's folder to run commands in.
type bench struct {
	t       *testing.T
	config  *rest.Config
	client  client.Client
	root    string
	manager string
	runner  string
	store   string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Getenv("TOOLCALL_E2E") != "1" || os.Getenv("KUBECONFIG") == "" {
		t.Skip("runs with TOOLCALL_E2E=1 and KUBECONFIG set, on a cluster with the operator that nobody else uses; `make test-full` does that")
	}
	log.SetLogger(logr.Discard())
	b := &bench{t: t}
	var err error
	b.config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	b.must(err)
	b.config.QPS, b.config.Burst = 200, 400
	scheme := runtime.NewScheme()
	b.must(errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	b.client, err = client.New(b.config, client.Options{Scheme: scheme})
	b.must(err)
	b.root, err = filepath.Abs("../..")
	b.must(err)
	pod := b.operatorPods()[0]
	b.manager = pod.Spec.Containers[0].Image
	b.runner = strings.TrimPrefix(pod.Spec.Containers[0].Args[0], "--runner-image=")
	store := &appsv1.StatefulSet{}
	b.must(b.client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "toolcall-store"}, store))
	b.store = store.Spec.Template.Spec.Containers[0].Image
	t.Cleanup(func() { b.run("make", "-s", "deploy") })
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// run executes a command in the project's folder.
func (b *bench) run(name string, args ...string) {
	b.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = b.root
	if output, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(output))
	}
}

func (b *bench) helm(args ...string) {
	b.t.Helper()
	program, err := built.Helper("helm")
	b.must(err)
	b.run(program, args...)
}

func (b *bench) eventually(what string, is func(context.Context) (bool, error)) {
	b.t.Helper()
	if err := wait.PollUntilContextTimeout(b.t.Context(), 200*time.Millisecond, patience, true, is); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

func (b *bench) operatorPods() []corev1.Pod {
	b.t.Helper()
	pods := &corev1.PodList{}
	b.must(b.client.List(b.t.Context(), pods, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/name": operator}))
	if len(pods.Items) == 0 {
		b.t.Fatal("no operator is installed: make deploy")
	}
	return pods.Items
}

func TestTheKustomizationLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.run("hack/undeploy.sh")
	before := b.without()
	b.run("make", "-s", "deploy")
	b.use()
	b.run("hack/undeploy.sh")
	b.deleteAgents()
	b.nothingSince(before)
	// Twice is fine.
	b.run("hack/undeploy.sh")
}

// Nobody takes a pool away then, and the garbage collector may not know yet which kinds there were.
func TestTheKustomizationLeavesNothingWithoutItsOperator(t *testing.T) {
	b := newBench(t)
	b.run("hack/undeploy.sh")
	before := b.without()
	b.run("make", "-s", "deploy")
	b.use()
	b.run(b.kubectl(), "scale", "deployment", operator, "-n", system, "--replicas=0")
	b.run(b.kubectl(), "wait", "--for=delete", "pod", "-n", system, "-l", "app.kubernetes.io/name="+operator, "--timeout=60s")
	b.run(b.kubectl(), "delete", "executionenvironments.toolcall.dev", "--all", "-n", agents)
	b.run("hack/undeploy.sh")
	b.deleteAgents()
	b.nothingSince(before)
}

func TestTheChartLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.run("hack/undeploy.sh")
	before := b.without()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: system, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	b.must(b.client.Create(t.Context(), namespace))
	chart := []string{"charts/toolcall-operator", "-n", system, "--wait", "--timeout", "2m", "--set", strings.Join([]string{
		"image.repository=" + repository(b.manager), "image.tag=" + tag(b.manager),
		"runnerImage.repository=" + repository(b.runner), "runnerImage.tag=" + tag(b.runner),
		"storeImage.repository=" + repository(b.store), "storeImage.tag=" + tag(b.store), "store.size=2Gi",
	}, ",")}
	chart[0] = filepath.Join(b.root, chart[0])
	b.helm(append([]string{"install", operator}, chart...)...)
	if pods := b.operatorPods(); len(pods) != 2 {
		t.Errorf("%d replicas were admitted", len(pods))
	}
	b.use()
	b.helm(append([]string{"upgrade", operator, "--set", "qps=123"}, chart...)...)
	for _, pod := range b.operatorPods() {
		if args := strings.Join(pod.Spec.Containers[0].Args, " "); pod.DeletionTimestamp == nil && !strings.Contains(args, "--qps=123") {
			t.Errorf("after the upgrade %s runs with %s", pod.Name, args)
		}
	}
	b.must(b.client.DeleteAllOf(t.Context(), &v1alpha1.ToolCall{}, client.InNamespace(agents)))
	b.helm("uninstall", operator, "-n", system, "--wait")
	// The kinds stayed, with their objects; they go when they are deleted.
	b.must(b.client.Get(t.Context(), client.ObjectKey{Namespace: agents, Name: "tools"}, &v1alpha1.ExecutionEnvironment{}))
	b.run(b.kubectl(), "delete", "jobs.batch,networkpolicies.networking.k8s.io", "--all-namespaces", "-l", v1alpha1.LabelManagedBy+"="+v1alpha1.ManagedBy)
	b.eventually("no pod that waits", func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := b.client.List(ctx, pods, client.InNamespace(agents))
		return len(pods.Items) == 0, err
	})
	b.deleteAgents()
	b.run(b.kubectl(), "delete", "-f", filepath.Join(b.root, "charts/toolcall-operator/files/crd"), "--wait")
	b.must(b.client.Delete(t.Context(), namespace))
	b.nothingSince(before)
}

// A call and an environment elsewhere stay as they are.
func TestSomeNamespacesOnly(t *testing.T) {
	b := newBench(t)
	b.run("hack/undeploy.sh")
	before := b.without()
	for _, name := range []string{agents, outside} {
		b.must(b.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	folder := t.TempDir()
	b.must(overlay.Namespaced(b.root, folder, agents))
	b.run("env", "KUSTOMIZATION="+folder, "make", "-s", "deploy")
	b.awaitAdmission()
	env, call := newEnvironment(outside), newCall("echo done")
	call.Namespace = outside
	b.must(b.client.Create(t.Context(), env))
	b.must(b.client.Create(t.Context(), call))
	b.use()
	for _, o := range []client.Object{env, call} {
		was := o.GetResourceVersion()
		b.must(b.client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if o.GetResourceVersion() != was {
			t.Errorf("%T %s outside of the operator's namespaces was written", o, o.GetName())
		}
	}
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}, &corev1.SecretList{}, &networkingv1.NetworkPolicyList{}} {
		b.must(b.client.List(t.Context(), list, client.InNamespace(outside)))
		if n := meta.LenList(list); n > 0 {
			t.Errorf("%d of %T outside of the operator's namespaces", n, list)
		}
	}
	b.run("hack/undeploy.sh")
	b.deleteAgents()
	b.run(b.kubectl(), "delete", "namespace", outside, "--wait", "--timeout=120s")
	b.nothingSince(before)
}

func (b *bench) kubectl() string {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path
	}
	return filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
}

func repository(image string) string { return image[:strings.LastIndex(image, ":")] }
func tag(image string) string        { return image[strings.LastIndex(image, ":")+1:] }

// use runs a call, and leaves another one running and pods waiting.
func (b *bench) use() {
	b.t.Helper()
	ctx := b.t.Context()
	b.must(client.IgnoreAlreadyExists(b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agents}})))
	policy := &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: agents},
		Spec:       v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}},
	}
	env := newEnvironment(agents)
	for _, o := range []client.Object{policy, env} {
		b.eventually("kinds in force", func(ctx context.Context) (bool, error) {
			err := b.client.Create(ctx, o)
			return err == nil || apierrors.IsAlreadyExists(err), client.IgnoreNotFound(err)
		})
	}
	b.awaitAdmission()
	b.awaitPhase(b.call("echo done"), v1alpha1.PhaseSucceeded)
	b.awaitPhase(b.call("sleep 600"), v1alpha1.PhaseRunning)
}

func newEnvironment(namespace string) *v1alpha1.ExecutionEnvironment {
	return &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tools", Annotations: map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: "toolcall.dev/tools:dev", ImagePullPolicy: corev1.PullIfNotPresent, PolicyRef: &v1alpha1.PolicyReference{Name: agents},
			WarmPool: &v1alpha1.WarmPool{Size: 1},
		},
	}
}

func newCall(command string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: agents, GenerateName: "call-"},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: command}},
	}
}

// awaitAdmission waits until the API server's admission knows the kind and its policies, a moment after they were
// installed: it stamps who creates a call.
func (b *bench) awaitAdmission() {
	b.t.Helper()
	b.eventually("admission of calls", func(ctx context.Context) (bool, error) {
		call := newCall("true")
		err := b.client.Create(ctx, call, client.DryRunAll)
		return err == nil && call.Spec.RequestedBy != nil, nil
	})
}

func (b *bench) call(command string) *v1alpha1.ToolCall {
	b.t.Helper()
	call := newCall(command)
	b.must(b.client.Create(b.t.Context(), call))
	return call
}

func (b *bench) awaitPhase(call *v1alpha1.ToolCall, phase v1alpha1.Phase) {
	b.t.Helper()
	b.eventually("call "+call.Name+" "+string(phase), func(ctx context.Context) (bool, error) {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(call), call); err != nil {
			return false, err
		}
		if call.Status.Phase.Terminal() && call.Status.Phase != phase {
			status, _ := json.Marshal(call.Status)
			return false, errors.New(string(status))
		}
		return call.Status.Phase == phase, nil
	})
}

// deleteAgents takes away what use made, as far as it is there.
func (b *bench) deleteAgents() {
	b.t.Helper()
	b.run(b.kubectl(), "delete", "namespace", agents, "--ignore-not-found", "--wait", "--timeout=120s")
	err := b.client.Delete(b.t.Context(), &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: agents}})
	if err != nil && !apierrors.IsNotFound(err) && !strings.Contains(err.Error(), "no matches for kind") {
		b.t.Fatal(err)
	}
}
