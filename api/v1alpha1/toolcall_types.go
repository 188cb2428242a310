package v1alpha1

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ToolCallSpec says what to run, where, and for whom. It can't be changed after creation, except
// that cancel may go from false to true.
//
// The schema holds structure and bounds only: rules in it would run again with every write of a status. That exactly one
// action is set, how large several fields may be together, and that nothing changes are ValidatingAdmissionPolicies, in
// config/admission.
type ToolCallSpec struct {
	// structured runs one binary with explicit arguments, without a shell.
	// +optional
	Structured *StructuredAction `json:"structured,omitempty"`

	// shell runs a command line through the environment's shell, "bash -c" unless the environment says otherwise.
	// +optional
	Shell *ShellAction `json:"shell,omitempty"`

	// code runs a snippet through the environment's interpreter for its language.
	// +optional
	Code *CodeAction `json:"code,omitempty"`

	// tool is a model's tool call as it was emitted; the operator maps it onto structured, shell or code.
	// +optional
	Tool *ToolAction `json:"tool,omitempty"`

	// file reads, writes or searches files, without a process.
	// +optional
	File *FileAction `json:"file,omitempty"`

	// environmentRef names the ExecutionEnvironment, in the same namespace, that the call runs in. The
	// namespace's default environment when unset. A name that doesn't exist fails the call
	// (EnvironmentNotFound); it never falls back.
	// +optional
	EnvironmentRef *LocalReference `json:"environmentRef,omitempty"`

	// sessionRef names a ToolSession, in the same namespace, whose pod, workspace, environment and skill the call shares.
	// It excludes environmentRef and skillRef. A session that doesn't exist fails the call (SessionNotFound), and so does
	// one that has ended (SessionEnded); the call never falls back.
	// +optional
	SessionRef *SessionReference `json:"sessionRef,omitempty"`

	// background says that the call is a server or watcher of its session: it takes no turn from other calls, has no time
	// limit unless it sets timeoutSeconds or is code that the policy's code.maxExecutionMilliseconds bounds, and ends with the
	// session or when it is cancelled. It needs sessionRef.
	// +optional
	Background bool `json:"background,omitempty"`

	// skillRef names a Skill, in the same namespace, whose variables the call gets.
	// +optional
	SkillRef *LocalReference `json:"skillRef,omitempty"`

	// workingDir is the directory that the process starts in. A relative path is joined with the image's
	// working directory. The session's, then the environment's workingDir when unset.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +optional
	WorkingDir string `json:"workingDir,omitempty"`

	// env are variables of this call alone, over those of its session and the environment. Literal values only.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []CallEnvVar `json:"env,omitempty"`

	// stdin is fed to the process, then its standard input is closed. Empty when unset, except for a background call: its
	// standard input stays open then, for toolsessions/proxy/input of the group subresources.toolcall.dev. At most 524288
	// characters.
	// +kubebuilder:validation:MaxLength=524288
	// +optional
	Stdin string `json:"stdin,omitempty"`

	// timeoutSeconds is the wanted limit of the process's wall-clock time, in seconds, at least 1. The policy's
	// timeouts.defaultSeconds when unset; never more than the policy's timeouts.maxSeconds. The limit in effect is
	// status.timeoutSeconds. A background call has none when unset.
	// +kubebuilder:validation:Minimum=1
	// +optional
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// collect are globs of files to keep when the process has ended, however it ended: relative to the working directory, below
	// the home directory with "~/", or absolute, below the directories that the policy lets the call write to (files.writePaths).
	// "*" and "?" stand for characters of one name, "**" for any number of names, "[a-z]" and "{a,b}" for alternatives. A file whose
	// path has control characters isn't kept. status.artifacts lists what was kept; the policy's output.artifacts bounds it. A file
	// action collects nothing.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[^\x00]*$`
	// +listType=atomic
	// +optional
	Collect []string `json:"collect,omitempty"`

	// network narrows what the policy's network lets the call reach. A call with hosts is denied where it has no
	// network, or where the policy's network.mode is Unrestricted.
	// +optional
	Network *CallNetwork `json:"network,omitempty"`

	// ttlSecondsAfterFinished is how long the finished object stays, in seconds; then it is deleted. 300 in a
	// session, else the environment's value, then 3600 when unset. 0 deletes it at once.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// cancel asks to stop the call. It may only go from false to true. A finished call ignores it.
	// +optional
	Cancel bool `json:"cancel,omitempty"`

	// requestedBy is who created the call. Admission sets it from the request itself, whatever the client wrote. Before
	// Kubernetes 1.36, clients set it, and admission refuses what isn't the user of the request.
	// +optional
	RequestedBy *Requester `json:"requestedBy,omitempty"`

	// trusted says that the call's context (environment, directory, variables) was written by an operator
	// of the platform, not by a model, so that blocked variables are kept. Admission refuses it unless the
	// requester may "trust" executionenvironments in this namespace.
	// +optional
	Trusted bool `json:"trusted,omitempty"`
}

// StructuredAction is one binary with its arguments.
type StructuredAction struct {
	// binary is the bare name of the program, looked up in PATH.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +required
	Binary string `json:"binary"`

	// args are its arguments, passed as they are.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=131071
	// +listType=atomic
	// +optional
	Args []string `json:"args,omitempty"`
}

// ShellAction is a command line.
type ShellAction struct {
	// command is the command line, at most 131071 characters (the kernel takes no longer argument).
	// +kubebuilder:validation:MaxLength=131071
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +required
	Command string `json:"command"`
}

// CodeAction is a snippet of a programming language.
type CodeAction struct {
	// language names the interpreter, compared in lower case, e.g. python.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Language string `json:"language"`

	// source is the snippet, at most 524288 characters.
	// +kubebuilder:validation:MaxLength=524288
	// +required
	Source string `json:"source"`

	// networkAccess asks for network access. Where the policy's network.mode is unset, its code.networkAccess must allow it,
	// and without it the snippet, and all that it starts, can't open an IP socket. Where mode is set, mode decides.
	// +optional
	NetworkAccess *bool `json:"networkAccess,omitempty"`
}

// ToolAction is a tool call as a model emitted it.
type ToolAction struct {
	// name is the tool's name, compared in lower case, e.g. bash, python or exec.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Name string `json:"name"`

	// arguments is the JSON object of its arguments.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Arguments *runtime.RawExtension `json:"arguments,omitempty"`
}

// LocalReference names an object in the same namespace.
type LocalReference struct {
	// name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`
}

// SessionReference names a ToolSession in the same namespace.
type SessionReference struct {
	// name of the ToolSession.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`

	// uid of the ToolSession: another session of the same name, created later, doesn't do. Any session of the name when
	// unset.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	UID string `json:"uid,omitempty"`
}

// CallEnvVar is a variable with a literal value.
type CallEnvVar struct {
	// name of the variable: letters, digits and underscores, not starting with a digit.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +required
	Name string `json:"name"`

	// value of the variable, without NUL bytes. Empty when unset.
	// +kubebuilder:validation:MaxLength=131072
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +kubebuilder:default=""
	// +optional
	Value string `json:"value"`
}

// Requester is an authenticated user, as the API server saw it.
type Requester struct {
	// username that the API server authenticated.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Username string `json:"username,omitempty"`

	// uid of the user, when the authenticator gives one.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	UID string `json:"uid,omitempty"`

	// groups of the user.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	// +optional
	Groups []string `json:"groups,omitempty"`

	// extra is what else the authenticator says about the user, e.g. the scopes of a token.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Extra map[string]ExtraValue `json:"extra,omitempty"`
}

// ExtraValue are the values of one key of a user's extra attributes.
// +kubebuilder:validation:MaxItems=64
// +kubebuilder:validation:items:MaxLength=4096
// +listType=atomic
type ExtraValue []string

// ToolCall is one tool call of one agent. It is created once, runs at most once and is never edited.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tc,categories=toolcall-dev
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.status.reason`
// +kubebuilder:selectablefield:JSONPath=`.status.environment.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.requestedBy.username`
// +kubebuilder:selectablefield:JSONPath=`.spec.sessionRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.ttlSecondsAfterFinished`
// +kubebuilder:selectablefield:JSONPath=`.status.outputState`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Exit",type=integer,JSONPath=`.status.exitCode`
// +kubebuilder:printcolumn:name="Environment",type=string,JSONPath=`.status.environment.name`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.status.action.summary`
// +kubebuilder:printcolumn:name="Duration-MS",type=integer,description="wall-clock time of the process in milliseconds",JSONPath=`.status.durationMilliseconds`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Requested-By",type=string,priority=1,JSONPath=`.spec.requestedBy.username`
// +kubebuilder:printcolumn:name="Session",type=string,priority=1,JSONPath=`.spec.sessionRef.name`
// +kubebuilder:printcolumn:name="Started",type=string,priority=1,description="when the process started",JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="CPU-MS",type=integer,priority=1,description="processor time of the call's processes in milliseconds",JSONPath=`.status.usage.cpuMilliseconds`
// +kubebuilder:printcolumn:name="Memory",type=integer,priority=1,description="most memory that one of the call's processes had, in bytes",JSONPath=`.status.usage.maxRSSBytes`
// +kubebuilder:printcolumn:name="Pod",type=string,priority=1,JSONPath=`.status.pod`
// +kubebuilder:printcolumn:name="Node",type=string,priority=1,JSONPath=`.status.node`
type ToolCall struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what to run, where, and for whom.
	// +required
	Spec ToolCallSpec `json:"spec"`

	// status is what happened. The operator alone writes it.
	// +optional
	// +structType=atomic
	Status ToolCallStatus `json:"status,omitempty"`
}

// RequesterName is who created the call, as far as it says; empty when it doesn't.
func (c *ToolCall) RequesterName() string {
	if c.Spec.RequestedBy == nil {
		return ""
	}
	return c.Spec.RequestedBy.Username
}

// IsEdited says that the spec was changed after the call was created, in another way than by cancel. The API server
// refuses that where the admission policies are in force.
func (c *ToolCall) IsEdited() bool { return c.Generation > 1 && !c.Spec.Cancel }

// FinishedAt is when the call ended, as its condition Finished says; its creation, where that is missing.
func (c *ToolCall) FinishedAt() time.Time {
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == ConditionFinished {
			return c.Status.Conditions[i].LastTransitionTime.Time
		}
	}
	return c.CreationTimestamp.Time
}

// AwaitsApproval says that the call waits for people to decide about it.
func (c *ToolCall) AwaitsApproval() bool {
	if c.Status.Approval == nil || c.Status.Phase.Terminal() {
		return false
	}
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == ConditionApproved {
			return c.Status.Conditions[i].Status == metav1.ConditionUnknown
		}
	}
	return false
}

// IsUndecided says that nobody answers yet whether the call's requester may use the tool, or the session.
func (c *ToolCall) IsUndecided() bool {
	return c.Status.Reason == ReasonNotStarted && slices.ContainsFunc(c.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Type == ConditionAccepted && condition.Status == metav1.ConditionUnknown
	})
}

// ToolCallList is a list of ToolCall.
//
// +kubebuilder:object:root=true
type ToolCallList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ToolCall `json:"items"`
}
