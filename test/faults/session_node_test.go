package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// lostWithPod are the ends of calls whose session lost its pod: they may have run, or their session ended before their turn.
var lostWithPod = []string{v1alpha1.ReasonPodLost, v1alpha1.ReasonSessionEnded}

// The node takes no more pods, and those of the sessions are evicted, as `kubectl drain` does it. Sessions with a claim go on
// when it takes pods again.
func TestSessionsDrained(t *testing.T) {
	b := newBed(t)
	s := b.newSessions(t, sessionCount/2)
	l := s.newSessionLoad(t, inSessions)
	l.awaitEnded(t, inSessions/4)
	t.Cleanup(func() { b.cordon(t, false) })
	b.cordon(t, true)
	s.evict(t)
	pause(t, 10*time.Second)
	b.cordon(t, false)
	l.verify(t, "sessions: node drained for 10 s", l.recover(t, time.Now()), lostWithPod...)
	s.expectMoved(t)
	l.expectEndsOfSessions(t, s)
}

// cordon says whether the node takes pods.
func (b *bed) cordon(t *testing.T, on bool) {
	t.Helper()
	// It is undone after the test too.
	ctx := context.WithoutCancel(t.Context())
	nodes := &corev1.NodeList{}
	must(t, b.client.List(ctx, nodes))
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on))
	for i := range nodes.Items {
		must(t, b.client.Patch(ctx, &nodes.Items[i], patch))
	}
}

// evict asks for the eviction of each session's pod, and waits until they are gone.
func (s *sessions) evict(t *testing.T) {
	t.Helper()
	pods := s.bed.clients.CoreV1().Pods(s.bed.namespace)
	for _, session := range s.list {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.bed.namespace, Name: session.Status.Pod}}
		must(t, client.IgnoreNotFound(pods.EvictV1(t.Context(), eviction)))
	}
	await(t, "end of the evicted pods", func(ctx context.Context) (bool, error) {
		for _, session := range s.list {
			pod, err := pods.Get(ctx, session.Status.Pod, metav1.GetOptions{})
			if err == nil && string(pod.UID) == session.Status.Runner.PodUID {
				return false, fmt.Errorf("pod %s is still there: %s", pod.Name, pod.Status.Phase)
			}
			if err != nil && !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return true, nil
	})
}

// The node loses its power, and its Node object is deleted: that proves that no process of a session goes on.
func TestSessionsNodeGone(t *testing.T) {
	sessionsLoseNode(t, "sessions: node gone (no power, its Node deleted)", func(b *bed, node *corev1.Node) { b.deleteNode(t, node) }, func(*bed) {})
}

// The node loses its power, and somebody says with a taint that it is out of service.
func TestSessionsNodeOutOfService(t *testing.T) {
	taint := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	sessionsLoseNode(t, "sessions: node out of service (no power, tainted)",
		func(b *bed, _ *corev1.Node) { b.taint(t, taint, true) }, func(b *bed) { b.taint(t, taint, false) })
}

// sessionsLoseNode cuts the power of the node, declares it lost, and has it come back when all that this proves has been
// drawn from it. The operator is elsewhere.
func sessionsLoseNode(t *testing.T, fault string, declare func(*bed, *corev1.Node), back func(*bed)) {
	t.Helper()
	b := newBed(t)
	b.operatorOutside(t)
	s := b.newSessions(t, sessionCount/2)
	l := s.newSessionLoad(t, inSessions)
	l.awaitEnded(t, inSessions/4)
	node := b.node(t)
	t.Cleanup(func() {
		back(b)
		b.powerOn(t, node.Name)
	})
	b.cutPower(t)
	declare(b, node)
	declared := time.Now()
	s.awaitEnded(t)
	s.await(t, "sessions with a claim that have let the lost pod go", s.kept(), func(now *v1alpha1.ToolSession) bool {
		return now.Status.Pod == "" || now.Status.Phase != v1alpha1.SessionReady && now.Status.Job != s.jobOf(now.Name)
	})
	t.Logf("with the node away, %s later, of %d calls %d have ended", time.Since(declared).Round(time.Second), len(l.calls), l.count(hasEnded))
	back(b)
	b.powerOn(t, node.Name)
	l.verify(t, fault, l.recover(t, time.Now()), lostWithPod...)
	s.expectMoved(t)
	l.expectEndsOfSessions(t, s)
}

// jobOf is the Job that a session had when it became ready.
func (s *sessions) jobOf(name string) string {
	for _, session := range s.list {
		if session.Name == name {
			return session.Status.Job
		}
	}
	return ""
}
