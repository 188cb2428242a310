package e2e

import (
	"context"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/full"
)

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
			// An image that has the runner isn't given a /tmp.
			e.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			e.VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
		}, "/home/session", "1000"},
		"in a user namespace": {func(e *v1alpha1.ExecutionEnvironmentSpec) { e.HostUsers = ptr.To(false) }, "/home/session", "1000"},
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
		if !full.Run() && name != "with a read-only root" && name != "in a user namespace" {
			continue // the others differ in what internal/jobspec's tests see
		}
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
	full.Only(t, "a pod's own files are the kubelet's")
	t.Parallel()
	sp := newSpace(t)
	session := sp.awaitIncarnation(t, sp.createSession(t, "work"), 1)
	expectSessionPath(t, session, v1alpha1.PathCold)
	sp.inPod(t, session, `set -e; touch /workspace/gone /tmp/gone`)
	output, err := sp.kubectl(t, "delete", "toolsession", session.Name, "-n", sp.namespace, "--timeout=60s")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	sp.awaitNoSessionPod(t, session)
	// The name is free.
	next := sp.awaitIncarnation(t, sp.createSession(t, "work"), 1)
	if next.Status.Pod == session.Status.Pod || next.Status.Job == session.Status.Job {
		t.Errorf("the next session of the name has pod %s of the one before", next.Status.Pod)
	}
	if text := sp.inPod(t, next, `ls -A /workspace /tmp`); strings.Contains(text, "gone") {
		t.Errorf("the next session finds %q", text)
	}
}

func TestASessionTakesAWaitingPodThatIsReplaced(t *testing.T) {
	full.Only(t, "controllers/toolsession shows it before an API server")
	t.Parallel()
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
	classless := func(s *v1alpha1.ToolSession) { s.Spec.Workspace.StorageClassName = ptr.To("") }
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
		"no storage class and no volume": {
			soon, []func(*v1alpha1.ToolSession){workspace("16Mi"), classless},
			[]string{v1alpha1.ReasonUnschedulable + ": ", "did not start within 5 s", "no storage class is set"},
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
		"killed": func(ctx context.Context, pod string) error {
			var id string
			// The runner is there before the kubelet says so.
			sp.awaitTrue(t, "container in the pod's status", func(context.Context) (bool, error) {
				object, err := sp.clients.CoreV1().Pods(sp.namespace).Get(ctx, pod, metav1.GetOptions{})
				if err != nil || len(object.Status.ContainerStatuses) == 0 {
					return false, err
				}
				_, id, _ = strings.Cut(object.Status.ContainerStatuses[0].ContainerID, "://")
				return id != "", nil
			})
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

// A session that isn't let in has neither pod nor claim, and one that is suspended gives its place away.
func TestSessionsOverTheLimitWait(t *testing.T) {
	full.Only(t, "controllers/toolsession shows it before an API server")
	t.Parallel()
	sp := newBareSpace(t)
	sp.newEnvironment(t, "limited", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Sessions = &v1alpha1.SessionLimits{Max: ptr.To(int32(1))}
	})
	first := sp.awaitIncarnation(t, sp.createSession(t, "first", sessionIn("limited"), workspace("16Mi")), 1)
	second := sp.createSession(t, "second", sessionIn("limited"), workspace("16Mi"))
	waiting := sp.awaitSession(t, second, "wait", func(s *v1alpha1.ToolSession) bool { return s.Status.Reason == v1alpha1.ReasonTooManySessions })
	claim := &corev1.PersistentVolumeClaim{}
	err := sp.client.Get(t.Context(), client.ObjectKey{Namespace: sp.namespace, Name: jobspec.ClaimName(second)}, claim)
	if waiting.Status.Phase != v1alpha1.SessionPending || !apierrors.IsNotFound(err) {
		t.Errorf("the session over the limit is %s, its claim: %v", waiting.Status.Phase, err)
	}
	sp.editSession(t, first, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	second = sp.awaitIncarnation(t, second, 1)
	sp.editSession(t, sp.awaitSessionSuspended(t, first), func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	sp.awaitSession(t, first, "wait", func(s *v1alpha1.ToolSession) bool { return s.Status.Reason == v1alpha1.ReasonTooManySessions })
	sp.editSession(t, second, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	sp.awaitIncarnation(t, first, 2)
}

// Nothing is left of a session that nobody waited for, whatever it had got by then.
func TestSessionsThatAreDeletedWhileTheyStart(t *testing.T) {
	full.Only(t, "controllers/toolsession shows it before an API server")
	t.Parallel()
	sp := newSpace(t)
	var deleted []*v1alpha1.ToolSession
	for i, until := range []func(*v1alpha1.ToolSession) bool{
		func(*v1alpha1.ToolSession) bool { return true },
		func(s *v1alpha1.ToolSession) bool { return s.Status.Job != "" },
		func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionReady },
	} {
		session := sp.createSession(t, "brief-"+strconv.Itoa(i), workspace("16Mi"))
		session = sp.awaitSession(t, session, "progress", until)
		must(t, sp.client.Delete(t.Context(), session.DeepCopy()))
		deleted = append(deleted, session)
	}
	for _, session := range deleted {
		sp.awaitGone(t, session.DeepCopy())
		sp.awaitNoSessionPod(t, session)
		sp.awaitGone(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: jobspec.ClaimName(session)}})
	}
}

func TestASessionThatIsSuspendedBeforeItStartsBeginsWhenItIsResumed(t *testing.T) {
	full.Only(t, "controllers/toolsession shows it before an API server")
	t.Parallel()
	sp := newSpace(t)
	fromTheStart := func(s *v1alpha1.ToolSession) { s.Spec.Suspend = true }
	early, late := sp.createSession(t, "early", workspace("16Mi"), fromTheStart), sp.createSession(t, "late", workspace("16Mi"))
	late = sp.awaitSession(t, late, "Job", func(s *v1alpha1.ToolSession) bool { return s.Status.Job != "" })
	sp.editSession(t, late, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	for _, session := range []*v1alpha1.ToolSession{early, late} {
		suspended := sp.awaitSessionSuspended(t, session)
		sp.awaitNoSessionPod(t, suspended)
		sp.editSession(t, suspended, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
		now := sp.awaitSession(t, session, "pod", func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionReady })
		sp.inPod(t, now, "touch /workspace/new")
	}
}

func TestSessionsThatAreTooLongIdleOrAlive(t *testing.T) {
	full.Only(t, "controllers/toolsession shows it before an API server")
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

// Killed while sessions start, serve, give their pod up and end, the operator comes back, and each goes on where it was. It
// isn't parallel: other tests need the operator.
func TestSessionsOutliveTheOperator(t *testing.T) {
	sp := newSpace(t)
	sp.newWarmEnvironment(t, 1)
	counting := sp.countPods(t)
	plain, claimed := sp.createSession(t, "plain"), sp.createSession(t, "claimed", workspace("16Mi"))
	suspends, ends := sp.createSession(t, "suspends", workspace("16Mi")), sp.createSession(t, "ends", workspace("16Mi"))
	waited := sp.createSession(t, "warm", sessionIn("warm"))
	before := map[*v1alpha1.ToolSession]*v1alpha1.ToolSession{}
	for _, session := range []*v1alpha1.ToolSession{plain, claimed, suspends, ends, waited} {
		before[session] = sp.awaitIncarnation(t, session, 1)
	}
	sp.inPod(t, before[suspends], `echo kept >/workspace/kept`)
	starts := sp.createSession(t, "starts", workspace("16Mi"))
	sp.editSession(t, before[suspends], func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	sp.editSession(t, before[ends], func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	killed := sp.killOperator(t)
	late := sp.createSession(t, "late")
	sp.awaitRestarted(t, killed)
	sp.awaitIncarnation(t, starts, 1)
	sp.awaitIncarnation(t, late, 1)
	suspended := sp.awaitSessionSuspended(t, suspends)
	sp.awaitEnded(t, ends, v1alpha1.ReasonEndRequested)
	sp.awaitGone(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: jobspec.ClaimName(ends)}})
	for _, session := range []*v1alpha1.ToolSession{plain, claimed, waited} {
		now := sp.awaitIncarnation(t, session, 1)
		if now.Status.Pod != before[session].Status.Pod || now.Status.Runner.KeyHash != before[session].Status.Runner.KeyHash {
			t.Errorf("session %s had pod %s and has %s", session.Name, before[session].Status.Pod, now.Status.Pod)
		}
		sp.inPod(t, now, "true")
	}
	sp.editSession(t, suspended, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	if text := sp.inPod(t, sp.awaitIncarnation(t, suspends, 2), `cat /workspace/kept`); text != "kept\n" {
		t.Errorf("the resumed session finds %q", text)
	}
	for job, pods := range counting.perJob() {
		if pods != 1 {
			t.Errorf("%d pods were made for Job %s", pods, job)
		}
	}
}
