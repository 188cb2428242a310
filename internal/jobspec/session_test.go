package jobspec_test

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
)

func session(name string) *v1alpha1.ToolSession {
	s := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	s.Spec.MaxLifetimeSeconds = ptr.To(int32(1000))
	return s
}

func sessionInput(t *testing.T, changes ...func(*jobspec.SessionInput)) jobspec.SessionInput {
	t.Helper()
	in := jobspec.SessionInput{
		Session: session("s"), Incarnation: 1, Created: time.UnixMicro(1234567), Sealer: sealer(t),
		Runtime: jobspec.Runtime{RunnerImage: "runner:1", Endpoints: []string{"a:1"}, CA: "ca"},
		Origin: &decide.Origin{
			Context: decide.Context{Named: &v1alpha1.ExecutionEnvironment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env", UID: "env-uid"},
				Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "img:1"},
			}},
			Refs: []corev1.EnvVar{reference()},
		},
	}
	for _, c := range changes {
		c(&in)
	}
	return in
}

func buildSession(t *testing.T, changes ...func(*jobspec.SessionInput)) *batchv1.Job {
	t.Helper()
	job, err := jobspec.BuildSession(sessionInput(t, changes...))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func withClaim(in *jobspec.SessionInput) {
	in.Session.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: resource.MustParse("1Gi")}
}

func TestASessionsJobIsItsOwn(t *testing.T) {
	t.Parallel()
	in := sessionInput(t)
	job := buildSession(t)
	if jobspec.SessionOf(job) != "s" || job.Labels[jobspec.LabelSession] != string(in.Session.UID) || job.Spec.Template.Labels[jobspec.LabelSession] == "" {
		t.Errorf("metadata: %+v", job.ObjectMeta)
	}
	if jobspec.SessionOf(build(t)) != "" || jobspec.SessionOf(buildWarm(t)) != "" {
		t.Error("the Job of a call or a pool counts as a session's")
	}
	for _, v := range job.Spec.Template.Spec.Containers[0].Env {
		if (v.Name == "TOOLCALL_RUNNER_CALL" || v.Name == "TOOLCALL_RUNNER_POOL") && v.Value != "" {
			t.Errorf("the runner is told that it is %s's: it takes no session", v.Value)
		}
	}
	if seconds := *job.Spec.ActiveDeadlineSeconds; seconds < 1000+120 {
		t.Errorf("the Job ends after %d s", seconds)
	}
	if at, ok := jobspec.SessionCreated(job); !ok || !at.Equal(in.Created) {
		t.Errorf("created %s, %v", at, ok)
	}
}

func TestEachPodOfASessionHasAJobOfItsOwnName(t *testing.T) {
	t.Parallel()
	s, other := session("s"), session("s")
	other.UID = "another"
	names := map[string]bool{}
	for _, name := range []string{
		jobspec.SessionJobName(s, 1), jobspec.SessionJobName(s, 2), jobspec.SessionJobName(other, 1), jobspec.ClaimName(s), jobspec.ClaimName(other),
	} {
		if len(name) > 63 || name[:3] != "tc-" || names[name] {
			t.Errorf("name %s, before it %v", name, names)
		}
		names[name] = true
	}
}

func TestWhatASessionBeginsWithCountsForItsOwnJobAlone(t *testing.T) {
	t.Parallel()
	in := sessionInput(t)
	read := func(change func(*batchv1.Job)) bool {
		job := buildSession(t)
		change(job)
		jobspec.Slim(job)
		origin, ok := jobspec.ReadOrigin(job, in.Session, sealer(t))
		if ok && cmp.Diff(in.Origin, origin) != "" {
			t.Error(cmp.Diff(in.Origin, origin))
		}
		return ok
	}
	if !read(func(*batchv1.Job) {}) {
		t.Error("the session's own Job doesn't count")
	}
	for name, change := range map[string]func(*batchv1.Job){
		"another image":  func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "evil:1" },
		"another owner":  func(j *batchv1.Job) { j.OwnerReferences[0].UID = "another" },
		"another name":   func(j *batchv1.Job) { j.Name = jobspec.SessionJobName(in.Session, 2) },
		"nothing sealed": func(j *batchv1.Job) { delete(j.Annotations, jobspec.AnnotationOrigin) },
		"sealed by others": func(j *batchv1.Job) {
			j.Annotations[jobspec.AnnotationOrigin] = buildSession(t, func(in *jobspec.SessionInput) { in.Sealer = foreignSealer(t) }).Annotations[jobspec.AnnotationOrigin]
		},
	} {
		if read(change) {
			t.Errorf("%s: it counts", name)
		}
	}
}

func TestTheCacheLeavesALargeOriginOut(t *testing.T) {
	t.Parallel()
	small := buildSession(t)
	large := buildSession(t, func(in *jobspec.SessionInput) { in.Origin.WorkingDir = string(make([]byte, 8<<10)) })
	for _, job := range []*batchv1.Job{small, large} {
		jobspec.SlimCached(job)
	}
	if jobspec.IsDecisionOmitted(small) || !jobspec.IsDecisionOmitted(large) {
		t.Error("what is left out isn't what is large")
	}
}

func TestTheWorkspaceAndTheHomeDirectoryLieOnTheClaim(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ExecutionEnvironmentSpec)
		want   map[string]string
	}{
		"an environment that says nothing": {
			func(*v1alpha1.ExecutionEnvironmentSpec) {}, map[string]string{"/workspace": "workspace", "/home/session": "home"},
		},
		"one that says where the home directory is": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.Env = []v1alpha1.EnvVar{{Name: "HOME", Value: "/home/dev"}}
			},
			map[string]string{"/workspace": "workspace", "/home/dev": "home"},
		},
		"one whose home directory is the workspace": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.Env = []v1alpha1.EnvVar{{Name: "HOME", Value: "/workspace"}}
			},
			map[string]string{"/workspace": "workspace"},
		},
		"one whose directories end with a slash": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.Env = []v1alpha1.EnvVar{{Name: "HOME", Value: "/workspace/"}}
				e.Volumes = []corev1.Volume{{Name: "own"}}
				e.VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: "/workspace/"}}
			},
			map[string]string{"/workspace": "workspace"},
		},
		"one whose home directory is the root directory": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.Env = []v1alpha1.EnvVar{{Name: "HOME", Value: "/"}}
			},
			map[string]string{"/workspace": "workspace"},
		},
		"one whose home directory is /tmp": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.Env = []v1alpha1.EnvVar{{Name: "HOME", Value: "/tmp"}}
			},
			map[string]string{"/workspace": "workspace"},
		},
		"one that mounts a workspace itself": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) {
				e.Volumes = []corev1.Volume{{Name: "own"}}
				e.VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: "/workspace"}}
			},
			map[string]string{"/workspace": "workspace", "/home/session": "home"},
		},
		"an image that has the runner": {
			func(e *v1alpha1.ExecutionEnvironmentSpec) { e.RunnerPath = "/runner" },
			map[string]string{"/workspace": "workspace", "/home/session": "home"},
		},
	} {
		job := buildSession(t, withClaim, func(in *jobspec.SessionInput) { tc.change(&in.Origin.Named.Spec) })
		pod := &job.Spec.Template.Spec
		got, paths := map[string]string{}, map[string]int{}
		for _, m := range pod.Containers[0].VolumeMounts {
			paths[path.Clean(m.MountPath)]++
			for _, v := range pod.Volumes {
				if v.Name == m.Name && v.PersistentVolumeClaim != nil {
					got[m.MountPath] = m.SubPath
				}
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || paths["/workspace"] != 1 {
			t.Errorf("%s: %s%v", name, diff, paths)
		}
		home := pod.Containers[0].Env[len(pod.Containers[0].Env)-1]
		if home.Name != "HOME" || home.Value != "/" && home.Value != "/tmp" && got[home.Value] == "" {
			t.Errorf("%s: HOME is %+v", name, home)
		}
	}
	for _, v := range buildSession(t).Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			t.Error("a session without a workspace has a claim")
		}
	}
}

func TestAClaimIsEmptyAndItsSessionsUnlessItIsKept(t *testing.T) {
	t.Parallel()
	in := sessionInput(t, withClaim)
	in.Session.Spec.Workspace.StorageClassName = ptr.To("fast")
	claim := jobspec.BuildClaim(in.Session)
	if !metav1.IsControlledBy(claim, in.Session) || *claim.Spec.StorageClassName != "fast" || claim.Spec.DataSource != nil || !jobspec.IsClaimOf(claim, in.Session) {
		t.Errorf("claim: %+v", claim)
	}
	in.Session.Spec.Workspace.Retain = v1alpha1.RetainKeep
	if kept := jobspec.BuildClaim(in.Session); len(kept.OwnerReferences) > 0 || !jobspec.IsClaimOf(kept, in.Session) {
		t.Errorf("a claim that is kept: %+v", kept)
	}
	other := session("other")
	other.UID = "another"
	copied := claim.DeepCopy()
	copied.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
	if jobspec.IsClaimOf(claim, other) || jobspec.IsClaimOf(copied, in.Session) {
		t.Error("another session's claim counts, or a copy of one")
	}
}

// Whoever looks for a claim whose session is gone knows the session's name.
func TestAClaimIsFoundByItsSessionsName(t *testing.T) {
	t.Parallel()
	longest, tooLong := strings.Repeat("n", 63), strings.Repeat("n", 64)
	for name, want := range map[string]string{"work": "work", "work.first-1": "work.first-1", longest: longest, tooLong: ""} {
		in := sessionInput(t, func(in *jobspec.SessionInput) { in.Session = session(name) }, withClaim)
		in.Session.UID = "uid"
		claim := jobspec.BuildClaim(in.Session)
		if got, has := claim.Labels[jobspec.LabelSessionName]; got != want || has != (want != "") {
			t.Errorf("the claim of session %s has the label %q", name, got)
		}
		for key, value := range claim.Labels {
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("session %s: label %s: %v", name, key, problems)
			}
		}
		if !jobspec.IsClaimOf(claim, in.Session) {
			t.Errorf("the claim of session %s isn't its own", name)
		}
	}
}

func TestAPoolsJobBecomesASessionsOwn(t *testing.T) {
	t.Parallel()
	job, s := buildWarm(t), session("s")
	now := time.Unix(5000, 0)
	job.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	jobspec.AdoptForSession(job, s, now)
	if jobspec.PoolOf(job) != "" || jobspec.SessionOf(job) != "s" || job.Labels[jobspec.LabelSession] != string(s.UID) {
		t.Errorf("adopted: %+v", job.ObjectMeta)
	}
	if ends := jobspec.EndsBy(job); ends.Before(now.Add(1000 * time.Second)) {
		t.Errorf("the pod ends at %s", ends)
	}
}
