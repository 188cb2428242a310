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
	"k8s.io/utils/ptr"
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

// pathOf is how a session without a workspace comes to its pod in this run, when a pod waits.
func pathOf(way string) v1alpha1.Path {
	if way == wayWarm {
		return v1alpha1.PathWarm
	}
	return v1alpha1.PathCold
}

func expectSessionPath(t *testing.T, session *v1alpha1.ToolSession, want v1alpha1.Path) {
	t.Helper()
	timings := session.Status.Timings
	if timings == nil || timings.Path != want || timings.ReadyMilliseconds == nil {
		t.Errorf("session %s went %+v, want path %s", session.Name, timings, want)
	}
}

// A session's files are what it is for: they outlive its pod, whoever the environment's pods run as, and wherever its image
// has the home directory.
func TestASessionsFilesOutliveItsPods(t *testing.T) {
	t.Parallel()
	sp := newBareSpace(t)
	for name, test := range map[string]struct {
		adjust func(*v1alpha1.ExecutionEnvironmentSpec)
		// where the home directory is, and the user's id.
		home, user string
	}{
		"as the operator's own user": {func(*v1alpha1.ExecutionEnvironmentSpec) {}, "/home/session", "1000"},
		"as the environment's user": {func(e *v1alpha1.ExecutionEnvironmentSpec) {
			e.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(65532)), RunAsGroup: ptr.To(int64(65532)), FSGroup: ptr.To(int64(2000))}
		}, "/home/session", "65532"},
		"with a read-only root": {func(e *v1alpha1.ExecutionEnvironmentSpec) {
			e.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
		}, "/home/session", "1000"},
		"with a home of its own": {func(e *v1alpha1.ExecutionEnvironmentSpec) {
			e.Env = []v1alpha1.EnvVar{value("HOME", "/workspace/home/")}
		}, "/workspace/home/", "1000"},
		"with the workspace as its home": {func(e *v1alpha1.ExecutionEnvironmentSpec) {
			e.Env = []v1alpha1.EnvVar{value("HOME", "/workspace/")}
		}, "/workspace/", "1000"},
		"with no home": {func(e *v1alpha1.ExecutionEnvironmentSpec) {
			e.Env = []v1alpha1.EnvVar{value("HOME", "/")}
		}, "", "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := envName(name)
			sp.newEnvironment(t, env, func(e *v1alpha1.ExecutionEnvironment) { test.adjust(&e.Spec) })
			session := sp.createSession(t, env, sessionIn(env), workspace("64Mi"))
			first := sp.awaitIncarnation(t, session, 1)
			expectSessionPath(t, first, v1alpha1.PathCold)
			claim := sp.claimOf(t, first)
			if size := claim.Status.Capacity[corev1.ResourceStorage]; claim.Status.Phase != corev1.ClaimBound || size.String() != "64Mi" {
				t.Errorf("the claim is %s with %s", claim.Status.Phase, size.String())
			}
			files := "/workspace/kept"
			if test.home != "" {
				files += " " + test.home + "/at-home"
			}
			if user := sp.inPod(t, first, `set -e; for f in `+files+`; do echo kept >$f; done; test ! -e /tmp/gone; touch /tmp/gone; mkdir /workspace/own; id -u`); strings.TrimSpace(user) != test.user {
				t.Errorf("calls would run as user %q, want %s", user, test.user)
			}
			sp.suspendAndResume(t, first)
			second := sp.awaitIncarnation(t, session, 2)
			if second.Status.Pod == first.Status.Pod || second.Status.Timings.Path != v1alpha1.PathCold {
				t.Errorf("the second pod is %s, the first %s; %+v", second.Status.Pod, first.Status.Pod, second.Status.Timings)
			}
			if text := sp.inPod(t, second, `set -e; cat `+files+`; test ! -e /tmp/gone; touch /workspace/own/more`); strings.ReplaceAll(text, "kept\n", "") != "" || text == "" {
				t.Errorf("the second pod finds %q", text)
			}
			sp.editSession(t, second, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
			sp.awaitEnded(t, session, v1alpha1.ReasonEndRequested)
			sp.awaitNoSessionPod(t, second)
			sp.awaitGone(t, claim)
		})
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

func TestAWorkspaceIsFullWhereItsClaimEnds(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	session := sp.awaitIncarnation(t, sp.createSession(t, "full", workspace("32Mi")), 1)
	if text := sp.inPod(t, session, `head -c 40M /dev/zero >/workspace/rest; echo " $?"; rm /workspace/rest; echo more >/workspace/more && echo fits`); !strings.Contains(text, "No space left on device") || !strings.Contains(text, "fits") {
		t.Errorf("40 MiB into a workspace of 32: %s", text)
	}
}

func TestAKeptWorkspaceOutlivesItsSession(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	keep := func(s *v1alpha1.ToolSession) { s.Spec.Workspace.Retain = v1alpha1.RetainKeep }
	session := sp.awaitIncarnation(t, sp.createSession(t, "kept", workspace("16Mi"), keep), 1)
	sp.inPod(t, session, `echo kept >/workspace/kept`)
	must(t, sp.client.Delete(t.Context(), session.DeepCopy()))
	sp.awaitGone(t, session.DeepCopy())
	sp.awaitNoSessionPod(t, session)
	claim := sp.claimOf(t, session)
	reader := sp.newClaimPod(t, "reader", claim.Name, `cat /data/workspace/kept; echo read`)
	if log := sp.awaitPodLog(t, reader, "read"); log != "kept\nread\n" {
		t.Errorf("the kept claim has %q", log)
	}
}

func TestASessionWithoutAWorkspaceLosesItsFilesWithItsPod(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.awaitPod(t, v1alpha1.ToolCallSpec{})
	session := sp.awaitIncarnation(t, sp.createSession(t, "work"), 1)
	expectSessionPath(t, session, pathOf(way))
	sp.inPod(t, session, `set -e; touch /workspace/gone /tmp/gone`)
	output, err := sp.kubectl(t, "delete", "toolsession", session.Name, "-n", sp.namespace, "--timeout=60s")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	sp.awaitNoSessionPod(t, session)
	// The name is free.
	sp.awaitPod(t, v1alpha1.ToolCallSpec{})
	next := sp.awaitIncarnation(t, sp.createSession(t, "work"), 1)
	if next.Status.Pod == session.Status.Pod || next.Status.Job == session.Status.Job {
		t.Errorf("the next session of the name has pod %s of the one before", next.Status.Pod)
	}
	if text := sp.inPod(t, next, `ls -A /workspace /tmp`); strings.Contains(text, "gone") {
		t.Errorf("the next session finds %q", text)
	}
}

func TestASessionTakesAWaitingPodThatIsReplaced(t *testing.T) {
	t.Parallel()
	onlyOneWay(t)
	sp := newSpace(t)
	sp.newWarmEnvironment(t, 1)
	session := sp.awaitIncarnation(t, sp.createSession(t, "warm", sessionIn("warm")), 1)
	expectSessionPath(t, session, v1alpha1.PathWarm)
	sp.awaitWarm(t, 1)
	job := &batchv1.Job{}
	sp.awaitTrue(t, "session as the owner of its Job", func(ctx context.Context) (bool, error) {
		err := sp.client.Get(ctx, client.ObjectKey{Namespace: sp.namespace, Name: session.Status.Job}, job)
		return metav1.IsControlledBy(job, session), err
	})
	call := sp.run(t, in("warm", shell("hostname")))
	if call.Status.Pod == session.Status.Pod {
		t.Error("a call without a session ran in the session's pod")
	}
	sp.editSession(t, session, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	sp.awaitEnded(t, session, v1alpha1.ReasonEndRequested)
	sp.awaitNoSessionPod(t, session)
}

// Whatever keeps a session's pod from starting, the session ends, says why, and leaves neither Job nor claim.
func TestSessionsThatCannotStart(t *testing.T) {
	t.Parallel()
	sp := newBareSpace(t)
	soon := func(e *v1alpha1.ExecutionEnvironmentSpec) { e.StartTimeoutSeconds = ptr.To(int32(5)) }
	class := func(s *v1alpha1.ToolSession) { s.Spec.Workspace.StorageClassName = ptr.To("no-such-class") }
	for name, test := range map[string]struct {
		environment func(*v1alpha1.ExecutionEnvironmentSpec)
		session     []func(*v1alpha1.ToolSession)
		says        []string
	}{
		"an image that can't be pulled": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) { e.Image = "registry.invalid/no/such:image" }, nil,
			[]string{v1alpha1.ReasonImagePullFailed + ": ", "registry.invalid/no/such:image"},
		},
		"an image that can't be pulled with a claim": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) { e.Image = "registry.invalid/no/such:image" }, []func(*v1alpha1.ToolSession){workspace("16Mi")},
			[]string{v1alpha1.ReasonImagePullFailed + ": ", "registry.invalid/no/such:image"},
		},
		"a storage class that isn't there": {
			soon, []func(*v1alpha1.ToolSession){workspace("16Mi"), class},
			[]string{v1alpha1.ReasonUnschedulable + ": ", "did not start within 5 s", `"no-such-class" not found`},
		},
		"a claim that is too large": {
			soon, []func(*v1alpha1.ToolSession){workspace("1Pi")},
			[]string{v1alpha1.ReasonUnschedulable + ": ", "did not start within 5 s", "the machine's disk has no room for the volume"},
		},
		"a claim that is too small": {
			soon, []func(*v1alpha1.ToolSession){workspace("4Ki")},
			[]string{v1alpha1.ReasonUnschedulable + ": ", "did not start within 5 s", "mkfs.ext4"},
		},
		"Pod Security refuses the pod": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(true)}
			}, []func(*v1alpha1.ToolSession){workspace("16Mi")},
			[]string{v1alpha1.ReasonPodRejected + ": ", "allowPrivilegeEscalation"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := envName(name)
			sp.newEnvironment(t, env, func(e *v1alpha1.ExecutionEnvironment) { test.environment(&e.Spec) })
			session := sp.createSession(t, env, append(test.session, sessionIn(env))...)
			ended := sp.awaitEnded(t, session, v1alpha1.ReasonStartFailed, test.says...)
			sp.awaitNoSessionPod(t, ended)
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: jobspec.ClaimName(session)}}
			sp.awaitGone(t, claim)
		})
	}
	t.Run("no environment", func(t *testing.T) {
		t.Parallel()
		sp.awaitEnded(t, sp.createSession(t, "nowhere", sessionIn("nowhere")), v1alpha1.ReasonStartFailed, v1alpha1.ReasonEnvironmentNotFound+": ", `"nowhere"`)
	})
}

// However a session's pod is taken away, a session without a claim ends, and one with a claim goes on with its files in
// another pod.
func TestSessionsWhosePodIsTakenAway(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	for name, takeAway := range map[string]func(ctx context.Context, pod string) error{
		"deleted": func(ctx context.Context, pod string) error {
			return sp.clients.CoreV1().Pods(sp.namespace).Delete(ctx, pod, metav1.DeleteOptions{})
		},
		"killed": func(_ context.Context, pod string) error {
			object, err := sp.clients.CoreV1().Pods(sp.namespace).Get(t.Context(), pod, metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, id, _ := strings.Cut(object.Status.ContainerStatuses[0].ContainerID, "://")
			sp.onNode(t, "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "KILL", id)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, claimed := sp.createSession(t, "plain-"+name), sp.createSession(t, "claimed-"+name, workspace("16Mi"))
			plain, claimed = sp.awaitIncarnation(t, plain, 1), sp.awaitIncarnation(t, claimed, 1)
			sp.inPod(t, claimed, `echo kept >/workspace/kept`)
			must(t, takeAway(t.Context(), plain.Status.Pod))
			must(t, takeAway(t.Context(), claimed.Status.Pod))
			sp.awaitEnded(t, plain, v1alpha1.ReasonPodLost, plain.Status.Pod)
			next := sp.awaitIncarnation(t, claimed, 2)
			if text := sp.inPod(t, next, `cat /workspace/kept`); text != "kept\n" {
				t.Errorf("the next pod finds %q", text)
			}
		})
	}
}

func TestSessionsThatAreTooLongIdleOrAlive(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	idle := func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = ptr.To(int32(1)) }
	old := func(s *v1alpha1.ToolSession) { s.Spec.MaxLifetimeSeconds = ptr.To(int32(5)) }
	brief := func(s *v1alpha1.ToolSession) { s.Spec.TTLSecondsAfterEnded = ptr.To(int32(1)) }
	ended, suspended := sp.createSession(t, "idle", idle), sp.createSession(t, "idle-claimed", idle, workspace("16Mi"))
	expired, forgotten := sp.createSession(t, "old", old, workspace("16Mi")), sp.createSession(t, "brief", idle, brief)
	sp.awaitEnded(t, ended, v1alpha1.ReasonIdleTimeout, "idleTimeoutSeconds")
	now := sp.awaitSessionSuspended(t, suspended)
	if now.Status.Reason != v1alpha1.ReasonIdleTimeout || now.Status.Incarnation != 1 {
		t.Errorf("the idle session is suspended for %s in incarnation %d", now.Status.Reason, now.Status.Incarnation)
	}
	sp.awaitNoSessionPod(t, suspended)
	sp.awaitEnded(t, expired, v1alpha1.ReasonMaxLifetime, "maxLifetimeSeconds")
	sp.awaitGone(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: jobspec.ClaimName(expired)}})
	sp.awaitGone(t, forgotten)
	// Ending a suspended session deletes its claim too.
	sp.editSession(t, now, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	sp.awaitEnded(t, suspended, v1alpha1.ReasonEndRequested)
	sp.awaitGone(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: jobspec.ClaimName(suspended)}})
}
