package e2e

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/attempts"
)

// newGVisorSpace makes one whose pods run under gVisor, which a node has that was started with TOOLCALL_CLUSTER_GVISOR=1.
func newGVisorSpace(t *testing.T, adjust ...func(*v1alpha1.ExecutionPolicySpec)) *space {
	t.Helper()
	const handler = "runsc"
	s := cluster(t)
	var nodes corev1.NodeList
	must(t, s.client.List(t.Context(), &nodes))
	if !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
		return slices.ContainsFunc(n.Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool { return h.Name == handler })
	}) {
		t.Skip("no node has gVisor: make test-gvisor starts one that has")
	}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: map[string]string{labelRun: s.id}}, Handler: handler}
	must(t, s.client.Create(t.Context(), class))
	s.discard(t, class)
	sp := newBareSpace(t, adjust...)
	sp.newEnvironment(t, defaultEnv, isDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.RuntimeClassName = &class.Name })
	return sp
}

// gVisor holds no connection: a call of which nothing says anything about a network has none, and says why.
func TestACallOfTheDefaultPolicyRunsUnderGVisor(t *testing.T) {
	t.Parallel()
	sp := newGVisorSpace(t)
	call := sp.run(t, shell(`cat /proc/version; python3 -c 'import socket; socket.socket()' 2>&1 | tail -1`))
	i := call.Status.Isolation
	if call.Status.Phase != v1alpha1.PhaseSucceeded || !strings.Contains(call.Status.Stdout, "Permission denied") || i == nil {
		t.Fatalf("%s: %s\n%s\n%+v", call.Status.Reason, call.Status.Message, call.Status.Stdout, i)
	}
	if i.RuntimeClass == "" || i.Network != v1alpha1.HeldNetworkNone || i.NoNetwork == "" || call.Status.Network == nil || call.Status.Network.Mode != v1alpha1.NetworkNone {
		t.Errorf("isolation %+v, network %+v", i, call.Status.Network)
	}
	sp.way = waySession
	session := sp.run(t, shell("echo in a session"))
	if session.Status.Phase != v1alpha1.PhaseSucceeded || session.Status.Stdout != "in a session\n" {
		t.Errorf("in a session: %s: %s", session.Status.Reason, session.Status.Message)
	}
}

func TestAListHoldsUnderGVisor(t *testing.T) {
	t.Parallel()
	all := newPodAttempts(t)
	sp := newGVisorSpace(t, listed(attempts.Listed...))
	for part := range slices.Chunk(all.Attempts, (len(all.Attempts)+3)/4) {
		call, ran := all.run(t, sp, part)
		for i, trace := range ran {
			t.Errorf("an unlisted program ran: %s\n%s\n%v", trace, strings.Join(part[i].Argv, " "), part[i].Env)
		}
		all.checkStatus(t, call)
		if call.Status.Isolation.Way != v1alpha1.IsolationTrace {
			t.Errorf("isolation %+v", call.Status.Isolation)
		}
	}
}

func TestANetworkThatGVisorCantHoldSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	sp := newGVisorSpace(t, func(p *v1alpha1.ExecutionPolicySpec) { p.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkOpen} })
	call := sp.run(t, shell("true"))
	if call.Status.Reason != v1alpha1.ReasonIsolationUnavailable || !strings.Contains(call.Status.Message, "network.mode to None") {
		t.Errorf("%s: %s", call.Status.Reason, call.Status.Message)
	}
}
