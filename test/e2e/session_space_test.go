package e2e

import (
	"context"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// workspace gives a session a claim.
func workspace(size string) func(*v1alpha1.ToolSession) {
	return func(s *v1alpha1.ToolSession) {
		s.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: resource.MustParse(size)}
	}
}

func sessionIn(environment string) func(*v1alpha1.ToolSession) {
	return func(s *v1alpha1.ToolSession) {
		s.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: environment}
	}
}

// createSession makes a session in the default environment. When the test fails, all that is known of it is printed.
func (sp *space) createSession(t *testing.T, name string, adjust ...func(*v1alpha1.ToolSession)) *v1alpha1.ToolSession {
	t.Helper()
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: name}}
	for _, change := range adjust {
		change(session)
	}
	must(t, sp.client.Create(t.Context(), session))
	sp.reportSessionOnFailure(t, session)
	return session
}

// awaitSession waits until a session satisfies done. One that has ended will not any more, if it doesn't then.
func (s *suite) awaitSession(t *testing.T, session *v1alpha1.ToolSession, what string, done func(*v1alpha1.ToolSession) bool) *v1alpha1.ToolSession {
	t.Helper()
	found := s.await(t, what+" of session "+session.Name, &v1alpha1.ToolSessionList{}, func(o client.Object, gone bool) bool {
		now, ok := o.(*v1alpha1.ToolSession)
		return ok && !gone && now.UID == session.UID && (done(now) || now.Status.Phase == v1alpha1.SessionEnded)
	}, named(session)...).(*v1alpha1.ToolSession)
	if !done(found) {
		t.Fatalf("session %s ended without its %s: %s: %s", session.Name, what, found.Status.Reason, found.Status.Message)
	}
	return found
}

// awaitIncarnation waits until the session takes calls in its nth pod.
func (s *suite) awaitIncarnation(t *testing.T, session *v1alpha1.ToolSession, n int32) *v1alpha1.ToolSession {
	t.Helper()
	now := s.awaitSession(t, session, "pod", func(now *v1alpha1.ToolSession) bool {
		return now.Status.Phase == v1alpha1.SessionReady && now.Status.Incarnation >= n
	})
	if now.Status.Incarnation != n {
		t.Errorf("session %s has had %d pods, want %d", session.Name, now.Status.Incarnation, n)
	}
	if now.Status.Pod == "" || now.Status.Job == "" || now.Status.Runner == nil || !meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("session %s is Ready with status %+v", session.Name, now.Status)
	}
	return now
}

// awaitSessionSuspended waits until the session has given its pod up.
func (s *suite) awaitSessionSuspended(t *testing.T, session *v1alpha1.ToolSession) *v1alpha1.ToolSession {
	t.Helper()
	return s.awaitSession(t, session, "suspension", func(now *v1alpha1.ToolSession) bool {
		return now.Status.Phase == v1alpha1.SessionSuspended && now.Status.Job == ""
	})
}

// awaitEnded waits for the end of a session, and checks its reason.
func (s *suite) awaitEnded(t *testing.T, session *v1alpha1.ToolSession, reason string, says ...string) *v1alpha1.ToolSession {
	t.Helper()
	now := s.awaitSession(t, session, "end", func(now *v1alpha1.ToolSession) bool { return now.Status.Phase == v1alpha1.SessionEnded })
	if now.Status.Reason != reason || !meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionEnded) {
		t.Errorf("session %s ended %s: %s; want %s", session.Name, now.Status.Reason, now.Status.Message, reason)
	}
	for _, text := range says {
		if !strings.Contains(now.Status.Message, text) {
			t.Errorf("the message of session %s doesn't say %q: %s", session.Name, text, now.Status.Message)
		}
	}
	return now
}

// editSession changes a session as a client would.
func (sp *space) editSession(t *testing.T, session *v1alpha1.ToolSession, change func(*v1alpha1.ToolSessionSpec)) {
	t.Helper()
	patch := session.DeepCopy()
	change(&patch.Spec)
	must(t, sp.client.Patch(t.Context(), patch, client.MergeFrom(session)))
}

// sessionPods are the pods of a session's Jobs. One that waited before has no label of the session.
func (sp *space) sessionPods(ctx context.Context, session *v1alpha1.ToolSession) ([]corev1.Pod, error) {
	jobs, pods := &batchv1.JobList{}, &corev1.PodList{}
	if err := sp.client.List(ctx, jobs, client.InNamespace(sp.namespace), client.MatchingLabels{jobspec.LabelSession: string(session.UID)}); err != nil {
		return nil, err
	}
	if err := sp.client.List(ctx, pods, client.InNamespace(sp.namespace)); err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, job := range jobs.Items {
		own[job.Name] = true
	}
	var list []corev1.Pod
	for _, pod := range pods.Items {
		if own[pod.Labels[batchv1.JobNameLabel]] || pod.Labels[jobspec.LabelSession] == string(session.UID) || pod.Name == session.Status.Pod {
			list = append(list, pod)
		}
	}
	return list, nil
}

// awaitNoSessionPod waits until no pod of the session, as it was then, is left.
func (sp *space) awaitNoSessionPod(t *testing.T, session *v1alpha1.ToolSession) {
	t.Helper()
	sp.awaitTrue(t, "end of the pods of session "+session.Name, func(ctx context.Context) (bool, error) {
		pods, err := sp.sessionPods(ctx, session)
		return err == nil && len(pods) == 0, err
	})
}

// claimOf is the claim of a session with a workspace.
func (sp *space) claimOf(t *testing.T, session *v1alpha1.ToolSession) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	must(t, sp.client.Get(t.Context(), client.ObjectKey{Namespace: sp.namespace, Name: jobspec.ClaimName(session)}, claim))
	return claim
}

// inPod runs a script in the session's pod, as the user of its calls.
func (sp *space) inPod(t *testing.T, session *v1alpha1.ToolSession, script string) string {
	t.Helper()
	said, err := sp.kubectl(t, "exec", "-n", sp.namespace, session.Status.Pod, "-c", jobspec.ContainerName, "--", "sh", "-c", script)
	if err != nil {
		t.Fatalf("%q in pod %s: %v: %s", script, session.Status.Pod, err, said)
	}
	return said
}

func (sp *space) reportSessionOnFailure(t *testing.T, session *v1alpha1.ToolSession) {
	since := metav1.Now()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx := context.Background()
		now := &v1alpha1.ToolSession{}
		if err := sp.client.Get(ctx, keyOf(session), now); err != nil {
			t.Log(err)
		}
		now.ManagedFields = nil
		t.Logf("session %s/%s:\n%s", sp.namespace, session.Name, toYAML(now))
		t.Logf("events of namespace %s:\n%s", sp.namespace, sp.describeEvents(ctx))
		t.Logf("operator:\n%s", sp.operatorLog(ctx, since))
	})
}

func expectSessionPath(t *testing.T, session *v1alpha1.ToolSession, want v1alpha1.Path) {
	t.Helper()
	timings := session.Status.Timings
	if timings == nil || timings.Path != want || timings.ReadyMilliseconds == nil {
		t.Errorf("session %s went %+v, want path %s", session.Name, timings, want)
	}
}

// suspendAndResume has a session give its pod up, and checks that the claim stays.
func (sp *space) suspendAndResume(t *testing.T, session *v1alpha1.ToolSession) {
	t.Helper()
	claim := sp.claimOf(t, session)
	sp.editSession(t, session, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	suspended := sp.awaitSessionSuspended(t, session)
	if s := suspended.Status; s.Pod != "" || s.Reason != v1alpha1.ReasonSessionSuspended || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("the suspended session has pod %q: %s: %s", s.Pod, s.Reason, s.Message)
	}
	sp.awaitNoSessionPod(t, session)
	if still := sp.claimOf(t, session); still.UID != claim.UID || still.DeletionTimestamp != nil || still.Status.Phase != corev1.ClaimBound {
		t.Errorf("the suspended session's claim is %s, deleted %v", still.Status.Phase, still.DeletionTimestamp)
	}
	sp.editSession(t, suspended, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
}
