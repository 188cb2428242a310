package operator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/standalone"
)

const (
	// sessionsAtOnce is how many sessions run calls at the same time.
	sessionsAtOnce   = 16
	sessionNamespace = "bench-session"
)

// sessionCalls measures calls of sessions whose commands take no time: one at a time, and many over many sessions.
func (b *bench) sessionCalls(ctx context.Context) (err error) {
	if err := b.ensureManager(ctx); err != nil {
		return err
	}
	n, err := startNode(ctx, b.client, sessionNamespace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := b.makeSpace(ctx, sessionNamespace, 0); err != nil {
		return err
	}
	if err := cluster.Create(ctx, b.client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: standalone.NodeName}}); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	sessions, err := b.startSessions(ctx)
	if err != nil {
		return err
	}
	subject := cluster.Calls(sessionNamespace)
	var made atomic.Int64
	subject.New = func(at metav1.ObjectMeta) client.Object {
		call := cluster.NewCall(at).(*v1alpha1.ToolCall)
		session := sessions[made.Add(1)%int64(len(sessions))]
		call.Spec.EnvironmentRef, call.Spec.SessionRef = nil, &v1alpha1.SessionReference{Name: session.Name, UID: string(session.UID)}
		return call
	}
	t, err := cluster.Track(ctx, b.client, subject, nil)
	if err != nil {
		return err
	}
	defer t.Stop()
	for name, atOnce := range map[string]int{"session, one at a time": 1, "session": 2 * sessionsAtOnce} {
		calls := b.calls
		if atOnce == 1 {
			calls = max(1, b.calls/10)
		}
		if err := b.measureSession(ctx, t, name, calls, atOnce); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measureSession(ctx context.Context, t *cluster.Tracker, name string, calls, atOnce int) error {
	b.say("%s: %d calls in %d sessions, %d in flight", name, calls, sessionsAtOnce, atOnce)
	before, err := b.process.Memory(ctx)
	if err != nil {
		return err
	}
	since, profiled := time.Now(), b.profileLater(ctx, fmt.Sprint("session-", atOnce))
	var done *outcome
	used, _, err := standalone.During(func() (err error) {
		done, err = runCalls(ctx, t, fmt.Sprint("call-", atOnce), calls, atOnce)
		return err
	})
	if err != nil {
		return err
	}
	after, err := b.process.Memory(ctx)
	if err != nil {
		return err
	}
	writes, err := b.server.Writes(sessionNamespace, since)
	if err != nil {
		return err
	}
	p := newPart(name, done, used)
	p.Writes, p.Before, p.After = writes.PerCall(float64(p.Calls)), &before, &after
	b.report.Parts = append(b.report.Parts, p)
	b.say("%s: %.1f calls/s, p50 %.3f s, p99 %.3f s, %.2f ms CPU and %.2f writes of the operator per call, %v",
		name, p.CallsPerSecond, p.Latency.P50, p.Latency.P99, p.CPU[standalone.Operator], p.Writes.Total(), p.CPU)
	return profiled()
}

// startSessions creates the sessions and waits until they take calls.
func (b *bench) startSessions(ctx context.Context) ([]*v1alpha1.ToolSession, error) {
	var sessions []*v1alpha1.ToolSession
	for i := range sessionsAtOnce {
		session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: sessionNamespace, Name: fmt.Sprint("session-", i)}}
		session.Spec.EnvironmentRef, session.Spec.MaxCalls = &v1alpha1.LocalReference{Name: cluster.EnvironmentName}, ptr.To(int32(100_000))
		if err := cluster.Create(ctx, b.client, session); err != nil {
			return nil, err
		}
		sessions = append(sessions, session)
	}
	for _, session := range sessions {
		err := cluster.Eventually(ctx, "session "+session.Name+" to be ready", func(ctx context.Context) (bool, error) {
			err := b.client.Get(ctx, client.ObjectKeyFromObject(session), session)
			if err == nil && session.Status.Phase == v1alpha1.SessionEnded {
				err = fmt.Errorf("it ended: %s: %s", session.Status.Reason, session.Status.Message)
			}
			return session.Status.Phase == v1alpha1.SessionReady, err
		})
		if err != nil {
			return nil, err
		}
	}
	return sessions, nil
}
