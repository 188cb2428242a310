package calls

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
)

// closeSessions deletes sessions and waits until they are gone with their pods.
func (b *sessionBench) closeSessions(ctx context.Context, room *fixture, sessions map[string]*v1alpha1.ToolSession) error {
	for _, session := range sessions {
		if err := client.IgnoreNotFound(b.client.Delete(ctx, session)); err != nil {
			return fmt.Errorf("delete session %s: %w", session.Name, err)
		}
	}
	return cluster.Eventually(ctx, "the sessions to be gone with their pods, and the pool to be full", func(ctx context.Context) (bool, error) {
		for _, session := range sessions {
			pod := client.ObjectKey{Namespace: session.Namespace, Name: session.Status.Pod}
			for key, o := range map[client.ObjectKey]client.Object{client.ObjectKeyFromObject(session): &v1alpha1.ToolSession{}, pod: &corev1.Pod{}} {
				if err := b.client.Get(ctx, key, o); key.Name != "" && !apierrors.IsNotFound(err) {
					return false, err
				}
			}
		}
		return room.idle(ctx)
	})
}

// settled says that nothing is there but the full pool.
func (f *fixture) settled(ctx context.Context) (bool, error) {
	if idle, err := f.idle(ctx); err != nil || !idle {
		return false, err
	}
	return f.empty(ctx)
}

// measureStarts measures sessions from their creation until they are seen to take calls: those that take a waiting pod, and
// those that get one of their own.
func (b *sessionBench) measureStarts(ctx context.Context) error {
	warm, err := b.newRoom(ctx, "warm", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.WarmPool = &v1alpha1.WarmPool{} })
	if err != nil {
		return err
	}
	if err := cluster.SetPool(ctx, b.client, warm.Namespace, b.pool); err != nil {
		return err
	}
	warm.pool = b.pool
	if err := b.start(ctx, warm, timeWarmSession, v1alpha1.PathWarm, b.session.starts); err != nil {
		return err
	}
	if err := cluster.SetPool(ctx, b.client, warm.Namespace, 0); err != nil {
		return err
	}
	warm.pool = 0
	if err := cluster.Eventually(ctx, "the pool to be gone", warm.settled); err != nil {
		return err
	}
	cold, err := b.newRoom(ctx, "cold")
	if err != nil {
		return err
	}
	return b.start(ctx, cold, timeColdSession, v1alpha1.PathCold, max(1, b.session.starts/4))
}

// start starts sessions one after the other; nothing else starts or ends meanwhile.
func (b *sessionBench) start(ctx context.Context, room *fixture, title string, path v1alpha1.Path, times int) error {
	t, err := cluster.Track(ctx, b.client, sessionsIn(room.Namespace, sessionSpec(1)), nil)
	if err != nil {
		return err
	}
	defer t.Stop()
	for i := range times {
		if err := cluster.Eventually(ctx, "the pool to be full, and nothing else to be there", room.settled); err != nil {
			return err
		}
		name := fmt.Sprintf("start%03d", i)
		s, err := t.Measure(ctx, name)
		if err != nil {
			return err
		}
		session := s.Object.(*v1alpha1.ToolSession)
		if timings := session.Status.Timings; timings == nil || timings.Path != path {
			return fmt.Errorf("session %s was to start %s, and its timings are %+v", name, path, timings)
		}
		b.values[title] = append(b.values[title], s.Seconds())
		if err := b.closeSessions(ctx, room, map[string]*v1alpha1.ToolSession{name: session}); err != nil {
			return err
		}
	}
	return nil
}

// measureResumes measures calls that wake a suspended session, each after a cold call.
func (b *sessionBench) measureResumes(ctx context.Context) error {
	if b.session.size == "" {
		return nil
	}
	size, err := resource.ParseQuantity(b.session.size)
	if err != nil {
		return fmt.Errorf("-workspace: %w", err)
	}
	room, err := b.newRoom(ctx, sessionsResume)
	if err != nil {
		return err
	}
	sessions, err := b.openSessions(ctx, room.Namespace, withWorkspace(sessionSpec(1), size), "kept")
	if err != nil {
		return err
	}
	calls, err := cluster.Track(ctx, b.client, callsOf(room.Namespace, sessions), nil)
	if err != nil {
		return err
	}
	defer calls.Stop()
	cold, err := cluster.Track(ctx, b.client, room.Subject, nil)
	if err != nil {
		return err
	}
	defer cold.Stop()
	for i := range b.session.resumes {
		for _, of := range []struct {
			title, name string
			tracker     *cluster.Tracker
		}{{timeCold, "cold", cold}, {timeResume, "kept", calls}} {
			if err := b.awaitSuspended(ctx, room, sessions["kept"]); err != nil {
				return err
			}
			s, err := of.tracker.Measure(ctx, fmt.Sprintf("%s-%03d", of.name, i))
			if err != nil {
				return err
			}
			b.values[of.title] = append(b.values[of.title], s.Seconds())
		}
	}
	return b.closeSessions(ctx, room, sessions)
}

// awaitSuspended waits until a session has no pod, and no call has one.
func (b *sessionBench) awaitSuspended(ctx context.Context, room *fixture, session *v1alpha1.ToolSession) error {
	now := &v1alpha1.ToolSession{}
	err := cluster.Eventually(ctx, "the session to be suspended and its pod to be gone", func(ctx context.Context) (bool, error) {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(session), now); err != nil {
			return false, err
		}
		if now.Status.Phase != v1alpha1.SessionSuspended || now.Status.Job != "" {
			return false, nil
		}
		return room.idle(ctx)
	})
	if err != nil {
		return fmt.Errorf("session %s is %s, %s, with Job %q: %w", now.Name, now.Status.Phase, now.Status.Reason, now.Status.Job, err)
	}
	return nil
}
