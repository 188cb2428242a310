package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExecutionEnvironmentSpec says where calls run.
//
// +kubebuilder:validation:XValidation:rule="!has(self.env) || self.env.map(e, size(e.name) + (has(e.value) ? size(e.value) : 0)).sum() <= 131072",message="env must not hold more than 131072 bytes (128 KiB) of names and values"
type ExecutionEnvironmentSpec struct {
	// image that calls run in. The runner is put into it when the pod starts, so that the image needs
	// nothing but what the calls themselves use.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Image string `json:"image"`

	// runnerPath is where the image already has the runner, of the operator's own version. Calls then start
	// sooner: nothing is mounted into their pods but volumes. The image has to have the directories /workspace and
	// /tmp, writable for the user that calls run as. Unset: the runner and both directories are mounted.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^/[^\x00]*[^/\x00]$`
	// +optional
	RunnerPath string `json:"runnerPath,omitempty"`

	// imagePullPolicy is Always, IfNotPresent or Never, as in a Pod.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets are names of Secrets to pull the image with, as in a Pod.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// workingDir that calls start in. A relative path is joined with the image's working directory. The
	// default environment's, then the image's working directory when unset.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +optional
	WorkingDir string `json:"workingDir,omitempty"`

	// env are the variables of every call in this environment.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []EnvVar `json:"env,omitempty"`

	// secrets are values of Secrets for the calls of certain tools only. Calls get those of the environment that they run
	// in, not those of the namespace's default one beside it.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +optional
	Secrets []ToolSecret `json:"secrets,omitempty"`

	// inheritEnv is Image (the default: calls get the image's own variables) or Minimal (of those only HOME,
	// USER, LOGNAME and PATH).
	// +kubebuilder:default=Image
	// +optional
	InheritEnv InheritMode `json:"inheritEnv,omitempty"`

	// allowedPaths are the directories that a working directory must be or lie in, symbolic links resolved.
	// Unset: /workspace, /tmp and the image's working directory.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:Pattern=`^/[^\x00]*$`
	// +listType=atomic
	// +optional
	AllowedPaths []string `json:"allowedPaths,omitempty"`

	// shell is the command that shell calls are passed to as the last argument. Its program runs though binaries.allowed of
	// the policy doesn't list it. Default bash -c.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +kubebuilder:default={"bash","-c"}
	// +optional
	Shell []string `json:"shell,omitempty"`

	// interpreters are the commands that code calls are run with, by language in lower case; the path of
	// the source is added as the last argument. Their programs run though binaries.allowed of the policy doesn't list them.
	// Built in: python, javascript, bash, sh, ruby, perl.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Interpreters map[string]CommandPrefix `json:"interpreters,omitempty"`

	// policyRef names the ExecutionPolicy that calls are held to. Naming one needs the verb "use" on that
	// executionpolicy. The policy that is annotated as the default, then the built-in defaults, when unset.
	// +optional
	PolicyRef *PolicyReference `json:"policyRef,omitempty"`

	// resources of the container, as in a Pod.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// nodeSelector of the pod.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the pod.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity of the pod.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// runtimeClassName of the pod, e.g. a sandboxed runtime.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// priorityClassName of the pod.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// serviceAccountName of the pod. Unset: the namespace's default account, and no token in the pod.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// volumes of the pod. Names that start with "toolcall-" are the operator's.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(v, !v.name.startsWith('toolcall-'))",message="volume names that start with toolcall- are the operator's own: choose another"
	// +listType=map
	// +listMapKey=name
	// +optional
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// volumeMounts of the container. One at /workspace or /tmp takes the place of the directory that is
	// mounted there otherwise.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// podMetadata are labels and annotations to put on the pod. Keys of toolcall.dev are the operator's.
	// +optional
	PodMetadata *PodMetadata `json:"podMetadata,omitempty"`

	// securityContext of the container, field by field over defaults that the restricted Pod Security
	// Standard admits.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// podSecurityContext of the pod, field by field over defaults that the restricted Pod Security
	// Standard admits: user and group 1000, no root, the runtime's seccomp profile.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`

	// hostUsers when false runs the pod in a user namespace of its own, as in a Pod. The cluster decides when unset.
	// +optional
	HostUsers *bool `json:"hostUsers,omitempty"`

	// warmPool keeps pods started and waiting, so that a call needs no new one. Each serves one call. kubectl scale and
	// a HorizontalPodAutoscaler change its size.
	// +optional
	WarmPool *WarmPool `json:"warmPool,omitempty"`

	// queues are the queues, Kueue's LocalQueues for instance, that a call may choose by the label
	// kueue.x-k8s.io/queue-name. The first is the default: calls that choose none wait in it, and so do the pods of the
	// warm pool. The label kueue.x-k8s.io/priority-class of the environment holds in each of them. Unset: no queue.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]+([-.]+[a-z0-9]+)*$`
	// +listType=atomic
	// +optional
	Queues []string `json:"queues,omitempty"`

	// suspend when true lets no new call start: calls wait in phase Pending until it is false again. Running calls go
	// on, and so do cancellations. Default false.
	// +kubebuilder:default=false
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// maxConcurrentCalls is how many calls may run in this environment at the same time. More wait in phase
	// Pending: each requester's calls start in order of creation, and requesters take turns. No limit when unset.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxConcurrentCalls *int32 `json:"maxConcurrentCalls,omitempty"`

	// sessions bound the sessions in this environment. maxConcurrentCalls doesn't count their calls.
	// +optional
	Sessions *SessionLimits `json:"sessions,omitempty"`

	// startTimeoutSeconds is how long a call may wait for its process to start. Default 120.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=120
	// +optional
	StartTimeoutSeconds *int32 `json:"startTimeoutSeconds,omitempty"`

	// ttlSecondsAfterFinished is how long finished calls stay that don't say it themselves. Default 3600.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=3600
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// jobTTLSecondsAfterFinished is how long the finished Jobs of calls stay, and with them the pods' logs.
	// Default 300.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=300
	// +optional
	JobTTLSecondsAfterFinished *int32 `json:"jobTTLSecondsAfterFinished,omitempty"`
}

// PolicyName is the name of the policy that the environment refers to, empty when it names none.
func (s *ExecutionEnvironmentSpec) PolicyName() string {
	if s.PolicyRef == nil {
		return ""
	}
	return s.PolicyRef.Name
}

// PolicyReference names an ExecutionPolicy.
type PolicyReference struct {
	// name of the ExecutionPolicy.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`
}

// WarmPool is a number of pods that wait for calls.
type WarmPool struct {
	// size is how many pods are kept started and waiting. 0 keeps none.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=200
	// +required
	Size int32 `json:"size"`
}

// InheritMode says what calls inherit of the image's variables.
// +kubebuilder:validation:Enum=Image;Minimal
type InheritMode string

// Modes of inheritEnv.
const (
	// InheritImage gives calls all of the image's variables.
	InheritImage InheritMode = "Image"
	// InheritMinimal gives calls HOME, USER, LOGNAME and PATH of the image's variables.
	InheritMinimal InheritMode = "Minimal"
)

// CommandPrefix is a command and its first arguments.
// +kubebuilder:validation:MinItems=1
// +kubebuilder:validation:MaxItems=16
// +kubebuilder:validation:items:MinLength=1
// +kubebuilder:validation:items:MaxLength=4096
// +listType=atomic
type CommandPrefix []string

// PodMetadata are labels and annotations of a pod.
//
// +kubebuilder:validation:XValidation:rule="!has(self.labels) || self.labels.all(k, !k.startsWith('toolcall.dev/') && k != 'app.kubernetes.io/managed-by')",message="labels of toolcall.dev/ and app.kubernetes.io/managed-by are the operator's own: choose others"
// +kubebuilder:validation:XValidation:rule="!has(self.annotations) || self.annotations.all(k, !k.startsWith('toolcall.dev/'))",message="annotations of toolcall.dev/ are the operator's own: choose others"
type PodMetadata struct {
	// labels to add.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations to add.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ExecutionEnvironmentStatus says whether the environment can be used, and how much it is used.
type ExecutionEnvironmentStatus struct {
	// conditions are Ready and, with a warm pool, Warm.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// activeCalls is the number of calls in this environment that have a Job and have not ended. Calls that wait
	// for their turn are not counted.
	// +optional
	ActiveCalls int32 `json:"activeCalls"`

	// warm counts the pods of the warm pool.
	// +optional
	Warm *WarmStatus `json:"warm,omitempty"`

	// observedGeneration is the generation that this status was made from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WarmStatus counts the pods of a warm pool.
type WarmStatus struct {
	// ready is how many pods wait for a call now.
	// +required
	Ready int32 `json:"ready"`

	// desired is how many should.
	// +required
	Desired int32 `json:"desired"`

	// selector finds the pods of the pool, as a HorizontalPodAutoscaler needs it. Pods that a call took are among them
	// until they end.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Selector string `json:"selector,omitempty"`
}

// ExecutionEnvironment is a named place to run calls in. Whoever writes it is trusted. Annotate one in a
// namespace with toolcall.dev/is-default-environment: "true" for the calls that name none.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.warmPool.size,statuspath=.status.warm.ready,selectorpath=.status.warm.selector
// +kubebuilder:resource:shortName=execenv,categories=toolcall-dev
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Default",type=string,JSONPath=`.metadata.annotations.toolcall\.dev/is-default-environment`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policyRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.activeCalls`
// +kubebuilder:printcolumn:name="Warm",type=integer,JSONPath=`.status.warm.ready`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExecutionEnvironment struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says where calls run.
	// +required
	Spec ExecutionEnvironmentSpec `json:"spec"`

	// status says whether the environment can be used, and how much it is used.
	// +optional
	Status ExecutionEnvironmentStatus `json:"status,omitempty"`
}

// ExecutionEnvironmentList is a list of ExecutionEnvironment.
//
// +kubebuilder:object:root=true
type ExecutionEnvironmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExecutionEnvironment `json:"items"`
}
