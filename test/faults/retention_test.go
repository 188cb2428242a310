package faults

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	retained     = 1000
	retainedPool = 50
)

// A thousand calls come and go, and neither the API nor the node has more than before.
func TestAThousandCallsLeaveNothing(t *testing.T) {
	b := newBed(t, func(e *v1alpha1.ExecutionEnvironmentSpec) {
		e.TTLSecondsAfterFinished, e.JobTTLSecondsAfterFinished = ptr.To(int32(5)), ptr.To(int32(5))
	})
	// The first pod has the namespace's own things made.
	must(t, b.runAndForget(t, "first"))
	b.awaitGone(t)
	api, node := b.countObjects(t), b.countTraces(t)

	began := time.Now()
	var group errgroup.Group
	group.SetLimit(retainedPool)
	for i := range retained {
		group.Go(func() error { return b.runAndForget(t, fmt.Sprintf("call-%04d", i)) })
	}
	must(t, group.Wait())
	t.Logf("%d calls, %d at a time, took %s", retained, retainedPool, time.Since(began).Round(time.Second))
	over := time.Now()
	b.awaitGone(t)
	await(t, "node as it was", func(context.Context) (bool, error) {
		now := b.countTraces(t)
		for what, n := range now {
			if n > node[what] {
				return false, fmt.Errorf("more than before (-before +now):\n%s", cmp.Diff(node, now))
			}
		}
		return true, nil
	})
	t.Logf("%s after the last end nothing was left; on the node there were before and are now %v and %v", time.Since(over).Round(time.Second), node, b.countTraces(t))
	if now := b.countObjects(t); cmp.Diff(api, now) != "" {
		t.Errorf("objects in the API (-before +now):\n%s", cmp.Diff(api, now))
	}
	if starts := len(b.starts(t)); starts != retained+1 {
		t.Errorf("%d commands have started, of %d", starts, retained+1)
	}
}

// runAndForget creates a call and waits until it has succeeded.
func (b *bed) runAndForget(t *testing.T, name string) error {
	call := &expected{name: name, stdout: text(name+".out", 100)}
	object := call.object(b.namespace)
	if err := b.client.Create(t.Context(), object); err != nil {
		return fmt.Errorf("create call %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := b.client.Watch(ctx, &v1alpha1.ToolCallList{}, client.InNamespace(b.namespace), client.MatchingFieldsSelector{
		Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, name),
	})
	if err != nil {
		return fmt.Errorf("watch call %s: %w", name, err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		now, ok := event.Object.(*v1alpha1.ToolCall)
		if !ok || !hasEnded(now) {
			continue
		}
		if now.Status.Phase != v1alpha1.PhaseSucceeded || now.Status.Stdout != call.stdout {
			return fmt.Errorf("call %s ended %s with %q: %s", name, now.Status.Reason, now.Status.Stdout, now.Status.Message)
		}
		return nil
	}
	return fmt.Errorf("call %s has not ended", name)
}

// awaitGone waits until the namespace has no calls, no Jobs and no pods.
func (b *bed) awaitGone(t *testing.T) {
	t.Helper()
	await(t, "end of all calls, Jobs and pods", func(ctx context.Context) (bool, error) {
		for _, list := range []client.ObjectList{&v1alpha1.ToolCallList{}, &batchv1.JobList{}, &corev1.PodList{}} {
			n, err := b.length(ctx, list)
			if err != nil || n > 0 {
				return false, fmt.Errorf("%T has %d: %w", list, n, err)
			}
		}
		return true, nil
	})
}

func (b *bed) length(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (int, error) {
	items := &metav1.PartialObjectMetadataList{}
	kind, err := b.client.GroupVersionKindFor(list)
	if err != nil {
		return 0, err
	}
	items.SetGroupVersionKind(kind)
	err = b.client.List(ctx, items, append(opts, client.InNamespace(b.namespace))...)
	return len(items.Items), err
}

// countObjects counts what the API has of the namespace. Events end by themselves after an hour; those are counted
// that the operator made.
func (b *bed) countObjects(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for name, list := range map[string]client.ObjectList{
		"ToolCalls": &v1alpha1.ToolCallList{}, "Jobs": &batchv1.JobList{}, "Pods": &corev1.PodList{},
		"Secrets": &corev1.SecretList{}, "ConfigMaps": &corev1.ConfigMapList{}, "NetworkPolicies": &networkingv1.NetworkPolicyList{},
	} {
		n, err := b.length(t.Context(), list)
		must(t, err)
		counts[name] = n
	}
	events := &corev1.EventList{}
	must(t, b.client.List(t.Context(), events, client.InNamespace(b.namespace)))
	counts["Events of calls"] = 0
	for i := range events.Items {
		if events.Items[i].InvolvedObject.Kind == "ToolCall" {
			counts["Events of calls"]++
		}
	}
	return counts
}

// addressFolder is where the node's network plugin notes the addresses of pods.
const addressFolder = "/run/cni-networks"

// traces are what pods and containers may leave on a node, each as a command that prints how many there are.
var traces = map[string]string{
	"containers":         "ctr -n k8s.io containers ls -q | wc -l",
	"tasks":              "ctr -n k8s.io tasks ls -q | wc -l",
	"snapshots":          "ctr -n k8s.io snapshots ls | wc -l",
	"leases":             "ctr -n k8s.io leases ls -q | wc -l",
	"pod folders":        "ls $STATE/kubelet/pods | wc -l",
	"log folders":        "ls $STATE/pod-logs | wc -l",
	"shim folders":       "ls /run/containerd/io.containerd.runtime.v2.task/k8s.io | wc -l",
	"control groups":     "find /sys/fs/cgroup -type d | wc -l",
	"mounts":             "wc -l < /proc/self/mountinfo",
	"processes":          "ls -d /proc/[0-9]*/task/ | wc -l",
	"network interfaces": "ls /sys/class/net | wc -l",
	"network namespaces": "ls /run/netns | wc -l",
	"pod addresses":      "find " + addressFolder + " -name '10.*' | wc -l",
	"firewall rules":     "iptables-save | grep -c '^-A'",
}

// A count of a folder that nothing is written to would be the same before and after, whatever is left.
func TestAddressesAreCountedWhereTheNodeKeepsThem(t *testing.T) {
	raw, err := os.ReadFile("../../hack/cluster/internal/blueprint/templates/cni.conflist")
	must(t, err)
	if !strings.Contains(string(raw), `"dataDir": "`+addressFolder+`"`) {
		t.Errorf("the node's network plugin doesn't note addresses in %s:\n%s", addressFolder, raw)
	}
}

// countTraces counts them, with what all of the node has.
func (b *bed) countTraces(t *testing.T) map[string]int {
	t.Helper()
	var script strings.Builder
	fmt.Fprintf(&script, "STATE=%s\n", b.state)
	for what, command := range traces {
		fmt.Fprintf(&script, "echo \"%s=$(%s)\"\n", what, command)
	}
	counts := map[string]int{}
	for line := range strings.Lines(b.onNode(t, "sh", "-c", script.String())) {
		what, number, _ := strings.Cut(strings.TrimSpace(line), "=")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("count %s on the node: %q", what, line)
		}
		counts[what] = n
	}
	return counts
}
