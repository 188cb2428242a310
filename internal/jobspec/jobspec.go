// Package jobspec builds the Jobs of calls, sessions and warm pools, and what goes with them: pure, whole, in one place.
//
// It is given the call, or the session, and what was decided about it, and returns the Job to create, with a deterministic
// name, so that building it twice makes one Job. The restricted Pod Security Standard admits the pod unless the environment
// asks for more. The package reads no clock, talks to nobody, and puts neither the command nor a credential into the pod, nor
// a literal variable but the HOME of a session with a claim: those reach the runner over its own connection, and the token by
// a Secret.
package jobspec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// Annotations of a Job.
const (
	// AnnotationDecision holds, on a call's Job, what was decided, sealed: only the operator can read or make it.
	AnnotationDecision = "toolcall.dev/decision"
	// AnnotationCall names, on a pod, the call that it was made for.
	AnnotationCall = "toolcall.dev/call"
	// AnnotationPool names, on a Job and its pod, the environment whose warm pool they were made for.
	AnnotationPool = "toolcall.dev/pool"
)

// Labels of a pod.
const (
	// LabelNetwork says whether the pod's call may use the network; NetworkPolicies select by it.
	LabelNetwork   = "toolcall.dev/network"
	NetworkDenied  = "denied"
	NetworkAllowed = "allowed"
)

// Defaults of an environment.
const (
	DefaultJobTTLSeconds = 300
	// GraceSeconds is the time between SIGTERM and SIGKILL.
	GraceSeconds = 5
	// reportSeconds is how long a runner may take, after its process is gone, to hand over the result. The
	// pod's grace period has room for both.
	reportSeconds = 10
	// deadlineSlackSeconds is by how much the Job's own deadline is later than anything that the runner or
	// the operator waits for: it only ends what both have lost.
	deadlineSlackSeconds = 120
)

// Pod parts.
const (
	// ContainerName is the container that our runner is the first process of. No other one counts: a mesh may inject more.
	ContainerName   = "call"
	runnerVolume    = "toolcall-runner"
	runnerMount     = "/.toolcall"
	runnerPath      = runnerMount + "/runner"
	workspaceVolume = "toolcall-workspace"
	tmpVolume       = "toolcall-tmp"
	// TokenKey is the key of a Job's Secret.
	TokenKey = "token"
)

// Runtime is what the operator knows of its own installation.
type Runtime struct {
	// RunnerImage holds /runner.
	RunnerImage string
	// CopyRunner has an init container copy the runner into each pod, for clusters without image volumes.
	CopyRunner bool `json:",omitempty"`
	// Users are those that namespaces have users from.
	Users UserRange `json:",omitzero"`
	// Domain is the cluster's DNS domain, such as cluster.local. Pods whose calls have a restricted network need it.
	Domain string `json:",omitempty"`
	// Search are the DNS domains that pods look names up in besides the cluster's.
	Search []string `json:",omitempty"`
	// Endpoints of the operator, host:port: its own pod, then the Service that leads to any.
	Endpoints []string
	// CA is the authority that runners check the operator against, as base64 of its certificate.
	CA string
}

// Sealer makes and checks what only the operator can have written. The context is part of a seal: sealed data counts
// only where it was written for.
type Sealer interface {
	Seal(context ...string) string
	CheckSeal(seal string, context ...string) bool
	Encrypt(plain []byte, context ...string) (string, error)
	Decrypt(sealed string, context ...string) ([]byte, error)
}

// Input is all that a call's Job depends on. The decision is a fresh one, with its environment.
type Input struct {
	Call     *v1alpha1.ToolCall
	Decision *decide.Decision
	Runtime  Runtime
	Sealer   Sealer
}

// Name of a call's Job. Part of the call's UID is in it, so that nobody can take the name beforehand.
func Name(call *v1alpha1.ToolCall) string {
	return nameFor("tc-", call.Name, 40, string(call.UID))
}

// nameFor makes a DNS label of a prefix, the beginning of an object's name, and a hash of what it stands for.
func nameFor(prefix, name string, length int, of string) string {
	sum := sha256.Sum256([]byte(of))
	trimmed := strings.ReplaceAll(strings.Trim(name[:min(len(name), length)], "-."), ".", "-")
	return prefix + trimmed + "-" + hex.EncodeToString(sum[:5])
}

// Build makes the Job of a call. The error is the user's: what the environment asks for can't be done.
func Build(in Input) (*batchv1.Job, error) {
	env := in.Decision.In
	job := build(jobParts{
		namespace: in.Call.Namespace,
		name:      Name(in.Call),
		call:      in.Call.Name,
		labels: map[string]string{
			v1alpha1.LabelCall: string(in.Call.UID),
			LabelNetwork:       networkLabel(in.Decision.DenyNetwork),
		},
		owners:  ownedBy("ToolCall", in.Call),
		env:     env,
		refs:    in.Decision.Refs,
		runtime: in.Runtime,

		restrictsNetwork: in.Decision.Network != nil,
	})
	if queue := ChosenQueue(env, in.Call); queue != "" {
		job.Labels[LabelQueue] = queue
	}
	job.Spec.ActiveDeadlineSeconds = ptr.To(deadlineSeconds(in.Decision))
	sealed, err := Seal(in.Sealer, in.Decision, decisionContext(job, in.Call, podDigest(&job.Spec.Template.Spec))...)
	if err != nil {
		return nil, err
	}
	job.Annotations = map[string]string{AnnotationDecision: sealed}
	return job, nil
}

// ownedBy is for what goes with a call or a session.
func ownedBy(kind string, owner metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true),
	}}
}

// decisionContext is where a decision on a Job counts: for this call, with this pod.
func decisionContext(job *batchv1.Job, call *v1alpha1.ToolCall, digest string) []string {
	return []string{"job", job.Namespace, job.Name, string(call.UID), digest}
}

// jobParts are what the Jobs of calls and those of warm pools have in common.
type jobParts struct {
	namespace, name string
	// call or pool is the name of the ToolCall, or of the ExecutionEnvironment whose pool the pod is for.
	call, pool string
	labels     map[string]string
	owners     []metav1.OwnerReference
	env        *v1alpha1.ExecutionEnvironment
	refs       []corev1.EnvVar
	runtime    Runtime
	// restrictsNetwork says that the runner decides about connections of the pod's calls.
	restrictsNetwork bool
}

func build(p jobParts) *batchv1.Job {
	p.labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	labels := maps.Clone(p.labels)
	maps.Copy(labels, queueLabels(p.env))
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name, Labels: labels, OwnerReferences: p.owners},
		Spec: batchv1.JobSpec{
			BackoffLimit:            ptr.To(int32(0)),
			PodReplacementPolicy:    ptr.To(batchv1.Failed),
			TTLSecondsAfterFinished: ptr.To(ptr.Deref(p.env.Spec.JobTTLSecondsAfterFinished, DefaultJobTTLSeconds)),
			Template:                podTemplate(p),
		},
	}
}

func networkLabel(denied bool) string {
	if denied {
		return NetworkDenied
	}
	return NetworkAllowed
}

// deadlineSeconds covers the wait for the start and the run.
func deadlineSeconds(d *decide.Decision) int64 {
	return int64(d.StartTimeoutSeconds) + RunSeconds(d.TimeoutMilliseconds)
}

// RunSeconds is how long after its start a call's pod is there at most: its limit, the grace, the report and the slack
// of the Job's own deadline.
func RunSeconds(timeoutMilliseconds int64) int64 {
	return (timeoutMilliseconds+999)/1000 + GraceSeconds + reportSeconds + deadlineSlackSeconds
}

// ReadDecision gives what was decided for the call that the Job belongs to. ok is false when the operator didn't make
// the Job for this call, or somebody changed its pod. The Job has been through Slim.
func ReadDecision(job *batchv1.Job, call *v1alpha1.ToolCall, sealer Sealer) (decision *decide.Decision, ok bool) {
	if !metav1.IsControlledBy(job, call) {
		return nil, false
	}
	return UnsealDecision(sealer, job.Annotations[AnnotationDecision], decisionContext(job, call, job.Annotations[annotationPodDigest])...)
}

// Seal encrypts what was decided about a call, or what a session begins with: only the operator can read or make it, and it counts
// in that context alone.
func Seal(sealer Sealer, decided interface{ Encode() ([]byte, error) }, context ...string) (string, error) {
	raw, err := decided.Encode()
	if err != nil {
		return "", err
	}
	sealed, err := sealer.Encrypt(raw, context...)
	if err != nil {
		return "", fmt.Errorf("seal what was decided: %w", err)
	}
	return sealed, nil
}

// UnsealDecision reads a sealed decision back. ok is false when the operator didn't seal it in that context.
func UnsealDecision(sealer Sealer, sealed string, context ...string) (decision *decide.Decision, ok bool) {
	return unseal(sealer, sealed, decide.Decode, context)
}

func unseal[T any](sealer Sealer, sealed string, decode func([]byte) (*T, error), context []string) (*T, bool) {
	raw, err := sealer.Decrypt(sealed, context...)
	if err != nil {
		return nil, false
	}
	decided, err := decode(raw)
	return decided, err == nil
}

// Credential builds the Secret that carries a Job's token to its pod, and that goes when the Job goes.
func Credential(job *batchv1.Job, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace,
			Name:      job.Name,
			Labels:    map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID,
			}},
		},
		Type:       corev1.SecretTypeOpaque,
		Immutable:  ptr.To(true),
		StringData: map[string]string{TokenKey: token},
	}
}

func podTemplate(p jobParts) corev1.PodTemplateSpec {
	env := &p.env.Spec
	labels, annotations := map[string]string{}, map[string]string{}
	init := initContainers(env, p.runtime)
	if len(init) > 0 {
		// Without it, kubectl logs and exec say each time which container they take.
		annotations[annotationDefaultContainer] = ContainerName
	}
	if env.PodMetadata != nil {
		maps.Copy(labels, env.PodMetadata.Labels)
		maps.Copy(annotations, env.PodMetadata.Annotations)
	}
	maps.Copy(labels, p.labels)
	if p.call != "" {
		annotations[AnnotationCall] = p.call
	}
	if p.pool != "" {
		annotations[AnnotationPool] = p.pool
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			EnableServiceLinks:            ptr.To(false),
			AutomountServiceAccountToken:  automount(env.ServiceAccountName),
			TerminationGracePeriodSeconds: ptr.To(int64(GraceSeconds + reportSeconds)),
			ServiceAccountName:            env.ServiceAccountName,
			ImagePullSecrets:              env.ImagePullSecrets,
			NodeSelector:                  env.NodeSelector,
			Tolerations:                   env.Tolerations,
			Affinity:                      env.Affinity,
			RuntimeClassName:              env.RuntimeClassName,
			PriorityClassName:             env.PriorityClassName,
			HostUsers:                     env.HostUsers,
			DNSPolicy:                     dnsPolicy(p),
			DNSConfig:                     dnsConfig(p),
			SecurityContext:               podSecurity(env.PodSecurityContext, userOf(p)),
			Volumes:                       volumes(env, p.runtime),
			InitContainers:                init,
			Containers:                    []corev1.Container{container(p)},
		},
	}
}

// automount keeps API tokens out of pods whose environment doesn't name an account on purpose.
func automount(serviceAccount string) *bool {
	if serviceAccount == "" {
		return ptr.To(false)
	}
	return nil
}

func container(p jobParts) corev1.Container {
	env := &p.env.Spec
	return corev1.Container{
		Name:                     ContainerName,
		Image:                    env.Image,
		ImagePullPolicy:          env.ImagePullPolicy,
		Command:                  []string{cmp.Or(env.RunnerPath, runnerPath)},
		Env:                      append(runnerEnv(p), p.refs...),
		Resources:                resources(env.Resources),
		VolumeMounts:             mounts(env),
		TerminationMessagePath:   wire.TerminationMessagePath,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext:          containerSecurity(env.SecurityContext),
	}
}

func runnerEnv(p jobParts) []corev1.EnvVar {
	literal := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	list := []corev1.EnvVar{
		literal(wire.EnvEndpoints, strings.Join(p.runtime.Endpoints, ",")),
		literal(wire.EnvCA, p.runtime.CA),
		{Name: wire.EnvToken, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: p.name}, Key: TokenKey,
		}}},
		literal(wire.EnvCall, p.call),
		literal(wire.EnvPool, p.pool),
		literal(wire.EnvJob, p.name),
		field(wire.EnvJobUID, "metadata.labels['"+batchv1.ControllerUidLabel+"']"),
		field(wire.EnvNamespace, "metadata.namespace"),
		field(wire.EnvPod, "metadata.name"),
		field(wire.EnvPodUID, "metadata.uid"),
		field(wire.EnvNode, "spec.nodeName"),
	}
	if p.restrictsNetwork {
		list = append(list, field(wire.EnvHostIPs, "status.hostIPs"))
	}
	return list
}
