package monitoring

import (
	"fmt"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/metrics"
)

const namespace = "agents"

func environment(name, policy string, pool int32) *v1alpha1.ExecutionEnvironment {
	env := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:1", PolicyRef: &v1alpha1.PolicyReference{Name: policy}},
	}
	if pool > 0 {
		env.Spec.WarmPool = &v1alpha1.WarmPool{Size: pool}
	}
	return env
}

func call(environment string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "call-"},
		Spec: v1alpha1.ToolCallSpec{
			Shell: &v1alpha1.ShellAction{Command: "true"}, EnvironmentRef: &v1alpha1.LocalReference{Name: environment},
			TTLSecondsAfterFinished: ptr.To[int32](3600),
		},
	}
}

// begin makes what an operator without nodes can work on: an environment with a pool, one that isn't Ready, one whose calls
// wait for each other, and one that denies every call.
func (w *watched) begin() {
	w.t.Helper()
	policy := func(name string, shell bool) *v1alpha1.ExecutionPolicy {
		return &v1alpha1.ExecutionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(shell)}},
		}
	}
	narrow := environment("narrow", "open", 0)
	narrow.Spec.MaxConcurrentCalls = ptr.To[int32](1)
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "session"}}
	session.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "narrow"}
	for _, o := range []client.Object{
		policy("open", true), policy("closed", false), environment("tools", "open", 2), environment("broken", "absent", 0), narrow,
		environment("strict", "closed", 0), session,
	} {
		eventually(w.t, "create "+o.GetName(), func() error { return w.create(o) })
	}
	for range 3 {
		w.createCall("narrow")
	}
}

// create waits for the admission policies, which read the schemas of the kinds a moment after those are there.
func (w *watched) create(o client.Object) error {
	err := w.admin.Create(w.t.Context(), o)
	if err != nil && !strings.Contains(err.Error(), "There can be a delay") {
		w.t.Fatal(err)
	}
	return err
}

func (w *watched) createCall(environment string) {
	w.t.Helper()
	one := call(environment)
	eventually(w.t, "create a call", func() error { return w.create(one) })
}

// absent makes the name of another environment that doesn't exist.
var absent atomic.Int64

// goOn has more of each happen: a denial and a call that fails, and by the operator's own functions what needs a node.
func (w *watched) goOn() {
	w.t.Helper()
	w.createCall("strict")
	w.createCall(fmt.Sprint("absent-", absent.Add(1)))
	tools := types.NamespacedName{Namespace: namespace, Name: "tools"}
	resolved := &v1alpha1.ResolvedEnvironment{Name: tools.Name}
	for _, path := range []v1alpha1.Path{v1alpha1.PathCold, v1alpha1.PathWarm} {
		status := &v1alpha1.ToolCallStatus{
			Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Environment: resolved,
			Streams: &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 10}},
			Refused: []v1alpha1.RefusedProgram{{Path: "/usr/bin/curl", Count: 1, Rule: "NotListed"}},
			Network: &v1alpha1.NetworkStatus{Denied: []v1alpha1.DeniedHost{{Host: "192.0.2.7", Port: 22, Count: 1}, {Host: "a.test", Count: 2}}},
			Timings: &v1alpha1.CallTimings{
				AcceptedMilliseconds: ptr.To[int64](2), StartedMilliseconds: ptr.To[int64](20), FinishedMilliseconds: ptr.To[int64](200), Path: path,
			},
		}
		metrics.CountFinished(namespace, status)
		metrics.CountStored(namespace, status, string(v1alpha1.StreamComplete), 10)
	}
	metrics.CountSessionReady(namespace, &v1alpha1.ToolSessionStatus{
		Environment: resolved, Timings: &v1alpha1.SessionTimingsStatus{ReadyMilliseconds: ptr.To[int64](900), Path: v1alpha1.PathCold},
	})
	metrics.CountSessionEnded(namespace, &v1alpha1.ToolSessionStatus{Environment: resolved, Reason: v1alpha1.ReasonEndRequested})
	metrics.CountReport(metrics.ReportRecorded)
}
