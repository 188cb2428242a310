package jobspec

import (
	"fmt"
	"path"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// LabelSession is the UID of the ToolSession that a Job, its pod or a claim was made for.
const LabelSession = "toolcall.dev/session-uid"

// LabelSessionName is the name of the ToolSession that a claim was made for: a claim that is kept outlives the session, and
// nobody knows a UID by heart. A name longer than 63 characters is no label's value, so its claim doesn't have the label: a
// shortened one could be another session's.
const LabelSessionName = "toolcall.dev/session-name"

// AnnotationOrigin holds, on a session's Job, what the session begins with, sealed.
const AnnotationOrigin = "toolcall.dev/session-origin"

// annotationCreated holds, on a session's Job, when the operator first saw the session, in microseconds since 1970: the
// session's own creation time has whole seconds. Only a timing depends on it.
const annotationCreated = "toolcall.dev/session-created"

// Directories of a session with a claim. The home directory is where the environment's own HOME leads, or else sessionHome:
// nobody outside the pod knows the image's.
const (
	workspaceMount = "/workspace"
	sessionHome    = "/home/session"
	homeVariable   = "HOME"
)

// Sub-paths of a session's claim.
const (
	workspacePart = "workspace"
	homePart      = "home"
)

// SessionInput is all that the Job of a session's pod depends on.
type SessionInput struct {
	Session *v1alpha1.ToolSession
	Origin  *decide.Origin
	// Incarnation counts the session's pods.
	Incarnation int32
	// Created is when the operator first saw the session.
	Created time.Time
	Runtime Runtime
	Sealer  Sealer
}

// SessionJobName is the name of the Job of a session's pod. Part of the session's UID is in it, so that nobody can take the
// name beforehand.
func SessionJobName(session *v1alpha1.ToolSession, incarnation int32) string {
	return nameFor("tc-session-", session.Name, 34, fmt.Sprint(session.UID, "/", incarnation))
}

// ClaimName is the name of a session's PersistentVolumeClaim.
func ClaimName(session *v1alpha1.ToolSession) string {
	return nameFor("tc-workspace-", session.Name, 34, string(session.UID))
}

// BuildSession makes the Job of a session's pod. The error is the user's: what the session begins with is too large.
func BuildSession(in SessionInput) (*batchv1.Job, error) {
	env := in.Origin.Effective()
	job := build(jobParts{
		namespace: in.Session.Namespace,
		name:      SessionJobName(in.Session, in.Incarnation),
		labels: map[string]string{
			LabelSession: string(in.Session.UID),
			LabelNetwork: NetworkAllowed,
		},
		owners:  ownedBy("ToolSession", in.Session),
		env:     env,
		refs:    in.Origin.Refs,
		runtime: in.Runtime,

		restrictsNetwork: !in.Origin.Unrestricted,
	})
	if in.Session.Spec.Workspace != nil {
		mountClaim(&job.Spec.Template.Spec, ClaimName(in.Session), homeOf(in.Origin))
	}
	job.Spec.ActiveDeadlineSeconds = ptr.To(sessionSeconds(in.Session, env))
	// Its end is the proof that nothing runs any more: it stays until the session and its calls have seen that.
	job.Spec.TTLSecondsAfterFinished = nil
	sealed, err := Seal(in.Sealer, in.Origin, originContext(job, in.Session, podDigest(&job.Spec.Template.Spec))...)
	if err != nil {
		return nil, err
	}
	job.Annotations = map[string]string{AnnotationOrigin: sealed, annotationCreated: strconv.FormatInt(in.Created.UnixMicro(), 10)}
	return job, nil
}

// homeOf is where the home directory of a session's calls lies: where its environments say so, or else at sessionHome.
func homeOf(origin *decide.Origin) string {
	for _, env := range []*v1alpha1.ExecutionEnvironment{origin.Named, origin.DefaultEnvironment()} {
		if env == nil {
			continue
		}
		for _, v := range env.Spec.Env {
			if v.Name == homeVariable && v.ValueFrom == nil && v.Value != "" {
				return path.Clean(v.Value)
			}
		}
	}
	return sessionHome
}

// mountClaim puts the workspace and the home directory on the session's claim, in place of what is mounted there. A home
// directory that is the root directory can't lie on a volume, and /tmp, which has the files of secrets, is never kept.
func mountClaim(pod *corev1.PodSpec, claim, home string) {
	container := &pod.Containers[0]
	hasOwn := home != workspaceMount && home != "/" && home != "/tmp"
	var kept []corev1.VolumeMount
	for _, m := range container.VolumeMounts {
		if at := path.Clean(m.MountPath); at != workspaceMount && (at != home || !hasOwn) {
			kept = append(kept, m)
		}
	}
	var volumes []corev1.Volume
	for _, v := range pod.Volumes {
		if v.Name != workspaceVolume {
			volumes = append(volumes, v)
		}
	}
	pod.Volumes = append(volumes, corev1.Volume{Name: workspaceVolume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
	container.VolumeMounts = append(kept, corev1.VolumeMount{Name: workspaceVolume, MountPath: workspaceMount, SubPath: workspacePart})
	if hasOwn {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: workspaceVolume, MountPath: home, SubPath: homePart})
	}
	container.Env = append(container.Env, corev1.EnvVar{Name: homeVariable, Value: home})
}

// sessionSeconds is the deadline of a session's Job. It only ends what runner and operator have lost.
func sessionSeconds(session *v1alpha1.ToolSession, env *v1alpha1.ExecutionEnvironment) int64 {
	return int64(decide.StartTimeoutSeconds(env)) + RunSeconds(session.MaxLifetime().Milliseconds())
}

// AdoptForSession changes a pool's Job into the session's own: owned by it, so that it goes with the session, and with a
// deadline that counts from now.
func AdoptForSession(job *batchv1.Job, session *v1alpha1.ToolSession, now time.Time) {
	job.OwnerReferences = ownedBy("ToolSession", session)
	metav1.SetMetaDataLabel(&job.ObjectMeta, LabelSession, string(session.UID))
	job.Spec.TTLSecondsAfterFinished = nil
	setDeadline(job, now, RunSeconds(session.MaxLifetime().Milliseconds()))
}

// BuildClaim makes a session's PersistentVolumeClaim. One that is kept belongs to nobody. Another one is the session's, so that
// it goes even if its creation reaches the API server after the session is gone.
func BuildClaim(session *v1alpha1.ToolSession) *corev1.PersistentVolumeClaim {
	w := session.Spec.Workspace
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, LabelSession: string(session.UID)}
	if len(validation.IsValidLabelValue(session.Name)) == 0 {
		labels[LabelSessionName] = session.Name
	}
	var owners []metav1.OwnerReference
	if w.Retain != v1alpha1.RetainKeep {
		owners = ownedBy("ToolSession", session)
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       session.Namespace,
			Name:            ClaimName(session),
			Labels:          labels,
			OwnerReferences: owners,
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			StorageClassName: w.StorageClassName,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: w.Size}},
		},
	}
}

// IsClaimOf says that a claim looks like the one that the operator makes for the session.
func IsClaimOf(claim *corev1.PersistentVolumeClaim, session *v1alpha1.ToolSession) bool {
	return claim.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && claim.Labels[LabelSession] == string(session.UID) &&
		claim.Spec.DataSource == nil && claim.Spec.DataSourceRef == nil
}

// originContext is where an origin on a Job counts: for this session, with this pod.
func originContext(job *batchv1.Job, session *v1alpha1.ToolSession, digest string) []string {
	return []string{"session job", job.Namespace, job.Name, string(session.UID), digest}
}

// ReadOrigin gives what the session begins with that the Job belongs to. ok is false when the operator didn't make the Job
// for this session, or somebody changed its pod. The Job has been through Slim.
func ReadOrigin(job *batchv1.Job, session *v1alpha1.ToolSession, sealer Sealer) (origin *decide.Origin, ok bool) {
	if !metav1.IsControlledBy(job, session) {
		return nil, false
	}
	return UnsealOrigin(sealer, job.Annotations[AnnotationOrigin], originContext(job, session, job.Annotations[annotationPodDigest])...)
}

// SessionCreated is when the operator first saw the session that a Job was made for; false when the Job doesn't say so.
func SessionCreated(job *batchv1.Job) (time.Time, bool) {
	microseconds, err := strconv.ParseInt(job.Annotations[annotationCreated], 10, 64)
	return time.UnixMicro(microseconds), err == nil
}

// UnsealOrigin reads a sealed origin back. ok is false when the operator didn't seal it in that context.
func UnsealOrigin(sealer Sealer, sealed string, context ...string) (origin *decide.Origin, ok bool) {
	origin, ok = unseal(sealer, sealed, decide.DecodeOrigin, context)
	return origin, ok && origin.Effective() != nil
}

// SessionOf is the name of the session that a Job belongs to; empty for other Jobs.
func SessionOf(job metav1.Object) string {
	if owner := metav1.GetControllerOf(job); owner != nil && owner.Kind == "ToolSession" {
		return owner.Name
	}
	return ""
}
