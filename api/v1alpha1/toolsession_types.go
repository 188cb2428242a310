package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ToolSessionSpec says where the calls of a session run and how long it lasts. It can't be changed after creation, except
// for suspend, and for end, which may go from false to true.
//
// As for calls, rules over several fields and immutability are ValidatingAdmissionPolicies, in config/admission.
type ToolSessionSpec struct {
	// environmentRef names the ExecutionEnvironment, in the same namespace, that the session's calls run in. The
	// namespace's default environment when unset. The session keeps the environment as it was when the session began. A
	// name that doesn't exist ends the session (StartFailed).
	// +optional
	EnvironmentRef *LocalReference `json:"environmentRef,omitempty"`

	// skillRef names a Skill, in the same namespace, whose variables the session's calls get.
	// +optional
	SkillRef *LocalReference `json:"skillRef,omitempty"`

	// workingDir is the directory that calls start in which set none. A relative path is joined with the image's working
	// directory. The environment's workingDir when unset.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +optional
	WorkingDir string `json:"workingDir,omitempty"`

	// env are variables of the session's calls, under each call's own and over those of the environment. Literal values
	// only, at most 131072 bytes of names and values.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []CallEnvVar `json:"env,omitempty"`

	// workspace puts the working files on a PersistentVolumeClaim, which outlives the session's pod. The workspace is the
	// pod's own and is lost with it when unset.
	// +optional
	Workspace *SessionWorkspace `json:"workspace,omitempty"`

	// idleTimeoutSeconds is how long the session may be without a call, in seconds; background calls don't count. Then it
	// is suspended, or ended if it has no workspace claim. 0 sets no limit. Default 900.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=900
	// +optional
	IdleTimeoutSeconds *int32 `json:"idleTimeoutSeconds,omitempty"`

	// maxLifetimeSeconds is how long after its creation the session ends, in seconds; running calls are cancelled.
	// Default 28800.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=28800
	// +optional
	MaxLifetimeSeconds *int32 `json:"maxLifetimeSeconds,omitempty"`

	// maxConcurrentCalls is how many calls run at the same time; more wait and start in the order of their creation.
	// Background calls don't count. Default 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	// +kubebuilder:default=1
	// +optional
	MaxConcurrentCalls *int32 `json:"maxConcurrentCalls,omitempty"`

	// maxCalls is how many calls the session takes before it ends, counted by its pod: one that is resumed counts anew. Default
	// 10000.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=10000
	// +optional
	MaxCalls *int32 `json:"maxCalls,omitempty"`

	// suspend when true cancels running calls and deletes the pod. The workspace claim stays, and calls wait until suspend
	// is false. It needs a workspace.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// end when true ends the session for good: running calls are cancelled, waiting ones fail. It may only go from false
	// to true.
	// +optional
	End bool `json:"end,omitempty"`

	// ttlSecondsAfterEnded is how long the ended session stays, in seconds; then it is deleted. 0 deletes it at once.
	// Default 3600.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=3600
	// +optional
	TTLSecondsAfterEnded *int32 `json:"ttlSecondsAfterEnded,omitempty"`

	// requestedBy is who created the session. Admission sets it from the request itself, whatever the client wrote. Before
	// Kubernetes 1.36, clients set it, and admission refuses what isn't the user of the request. This user may create calls
	// in the session; others need the verb "use" on it.
	// +optional
	RequestedBy *Requester `json:"requestedBy,omitempty"`
}

// SessionWorkspace is the PersistentVolumeClaim of a session. /workspace and the home directory lie on it, /tmp doesn't.
type SessionWorkspace struct {
	// size of the claim, e.g. 10Gi.
	// +required
	Size resource.Quantity `json:"size"`

	// storageClassName of the claim, as in a PersistentVolumeClaim. The cluster's default class when unset.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`

	// retain is Delete (the default: the claim goes with the session) or Keep (the claim stays).
	// +kubebuilder:default=Delete
	// +optional
	Retain RetainMode `json:"retain,omitempty"`
}

// RetainMode says what becomes of a session's workspace claim.
// +kubebuilder:validation:Enum=Delete;Keep
type RetainMode string

// Modes of retain.
const (
	// RetainDelete deletes the claim with the session.
	RetainDelete RetainMode = "Delete"
	// RetainKeep leaves the claim.
	RetainKeep RetainMode = "Keep"
)

// SessionPhase is the coarse state of a ToolSession.
// +kubebuilder:validation:Enum=Pending;Ready;Suspended;Ended
type SessionPhase string

// Phases of a ToolSession. The last one is final.
const (
	// SessionPending waits for its turn, or for its pod.
	SessionPending SessionPhase = "Pending"
	// SessionReady has a pod that takes calls.
	SessionReady SessionPhase = "Ready"
	// SessionSuspended has a workspace claim and no pod.
	SessionSuspended SessionPhase = "Suspended"
	// SessionEnded takes no calls any more.
	SessionEnded SessionPhase = "Ended"
)

// ToolSessionStatus is what became of a session. The operator alone writes it.
type ToolSessionStatus struct {
	// phase is Pending, Ready, Suspended or Ended, which is final.
	// +optional
	Phase SessionPhase `json:"phase,omitempty"`

	// reason of the phase, CamelCase.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`

	// message is a sentence for a person about the reason, at most 2048 bytes as JSON.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// conditions are Ready (a call would start at once) and Ended.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// environment is what was resolved when the session began, for calls that set nothing themselves: names and sources, never
	// values. Without what only a pod knows: the working directory and the image's variables.
	// +optional
	Environment *ResolvedEnvironment `json:"environment,omitempty"`

	// job is the name of the Job of the session's pod.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Job string `json:"job,omitempty"`

	// pod is the name of the pod that runs the session's calls.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Pod string `json:"pod,omitempty"`

	// node is the name of the node that the pod runs on.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`

	// runner identifies the one process that calls are handed to. Written before the first call is handed over, and
	// replaced only after every call that the process may have got has ended. Its decision is what the session began with.
	// +optional
	Runner *RunnerBinding `json:"runner,omitempty"`

	// incarnation is how many pods the session has had.
	// +optional
	Incarnation int32 `json:"incarnation,omitempty"`

	// isolation says what holds all calls of the session's pod, as its runner found out before the first one; absent when
	// it doesn't say, and while there is no pod. Each call's own isolation says what held that call.
	// +structType=atomic
	// +optional
	Isolation *SessionIsolation `json:"isolation,omitempty"`

	// calls counts the session's calls, as they were when the phase last changed.
	// +optional
	Calls *SessionCallsStatus `json:"calls,omitempty"`

	// lastCallTime is when the last call that was handed to the session's process ended, as it was when the phase last changed.
	// +optional
	LastCallTime *metav1.Time `json:"lastCallTime,omitempty"`

	// timings say how soon the session was ready.
	// +optional
	Timings *SessionTimingsStatus `json:"timings,omitempty"`

	// observedGeneration is the generation that this status was made from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// SessionIsolation is what holds all calls of a session. A field is absent where the runner couldn't tell.
type SessionIsolation struct {
	// user is the UID that commands run as, as the pod counts UIDs: in a user namespace, the node knows it as another one.
	// +required
	User int64 `json:"user"`

	// seccomp is the mode of the filter that the container's runtime set, as the kernel says: Disabled, Strict or Filter.
	// What a filter lets through, nobody can see from inside. The runner's own filters come on top and don't count.
	// +optional
	Seccomp SeccompMode `json:"seccomp,omitempty"`

	// userNamespace says that the kernel maps the pod's UIDs to others: it has a user namespace of its own. False says that
	// every UID is mapped to itself, as in the node's initial user namespace; a user namespace that does the same looks no
	// different from inside. A sandbox with a kernel of its own, such as gVisor, speaks for that kernel only.
	// +optional
	UserNamespace *bool `json:"userNamespace,omitempty"`

	// runtimeClass is the runtimeClassName that the operator gave the pod; absent for the cluster's default.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RuntimeClass string `json:"runtimeClass,omitempty"`

	// network is Pod: the pod itself isn't restricted. What a call has is in its own status.isolation.network. NetworkPolicies
	// may hold more, which nobody inside can see.
	// +optional
	Network HeldNetwork `json:"network,omitempty"`

	// landlockABI is the version of the node's Landlock, in a domain of which each call runs. 0 says that there is none:
	// calls of the session can signal and trace each other's processes then, and write wherever their user may. Before
	// version 6 (Linux 6.12) they can signal each other's processes, and can't trace them.
	// +required
	LandlockABI int32 `json:"landlockABI"`
}

// SessionCallsStatus counts the calls of a session.
type SessionCallsStatus struct {
	// running is how many calls run, background calls among them.
	// +required
	Running int32 `json:"running"`

	// queued is how many calls wait for their turn.
	// +required
	Queued int32 `json:"queued"`

	// ended is how many calls have ended in the session's pod.
	// +required
	Ended int32 `json:"ended"`
}

// SessionTimingsStatus says how a session came to its first pod.
type SessionTimingsStatus struct {
	// readyMilliseconds until the session's first pod took calls, since the session's creation (since the operator first
	// saw it, if that was within a second).
	// +optional
	ReadyMilliseconds *int64 `json:"readyMilliseconds,omitempty"`

	// path is Cold for a pod made for the session, Warm for one that was waiting.
	// +optional
	Path Path `json:"path,omitempty"`
}

// ToolSession is one caller's trust domain. Calls of one session can read each other's files; calls of different sessions,
// and calls without one, share nothing. A session's calls share its pod, with the workspace, the home directory and /tmp;
// variables, directory and processes don't carry over from one call to the next.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tsn,categories=toolcall-dev
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.status.reason`
// +kubebuilder:selectablefield:JSONPath=`.status.environment.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.requestedBy.username`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Environment",type=string,JSONPath=`.status.environment.name`
// +kubebuilder:printcolumn:name="Workspace",type=string,description="size of the workspace claim",JSONPath=`.spec.workspace.size`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Requested-By",type=string,priority=1,JSONPath=`.spec.requestedBy.username`
// +kubebuilder:printcolumn:name="Incarnation",type=integer,priority=1,description="how many pods the session has had",JSONPath=`.status.incarnation`
// +kubebuilder:printcolumn:name="Pod",type=string,priority=1,JSONPath=`.status.pod`
// +kubebuilder:printcolumn:name="Node",type=string,priority=1,JSONPath=`.status.node`
type ToolSession struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says where the session's calls run and how long it lasts.
	// +kubebuilder:default={}
	// +optional
	Spec ToolSessionSpec `json:"spec,omitempty"`

	// status is what became of the session. The operator alone writes it.
	// +optional
	Status ToolSessionStatus `json:"status,omitempty"`
}

// SessionFinalizer keeps the name of a session until its calls have ended.
const SessionFinalizer = "toolcall.dev/session"

// IsHeld says that the session's name isn't free before its calls have ended. No call is handed over before that.
func (s *ToolSession) IsHeld() bool { return slices.Contains(s.Finalizers, SessionFinalizer) }

// TakesCalls says that the session hasn't ended and that nobody has asked to end or delete it.
func (s *ToolSession) TakesCalls() bool {
	return !s.Spec.End && s.DeletionTimestamp == nil && s.Status.Phase != SessionEnded
}

// ToolSessionList is a list of ToolSession.
//
// +kubebuilder:object:root=true
type ToolSessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ToolSession `json:"items"`
}

// SessionLimits bound the sessions of an environment. Each session has a pod, an idle one too.
type SessionLimits struct {
	// max is how many sessions of the environment may have a pod at the same time. More wait in phase Pending
	// (TooManySessions). 0 allows none. No limit when unset.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Max *int32 `json:"max,omitempty"`

	// maxPerCaller is how many of these one requester may have. No limit when unset.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxPerCaller *int32 `json:"maxPerCaller,omitempty"`
}
