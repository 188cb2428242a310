package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ToolCallSpec says what to run, where, and for whom. It can't be changed after creation, except
// that cancel may go from false to true.
//
// The rules take an empty value for an absent one: a client that reads an object into a type and writes it back
// drops empty values.
//
// +kubebuilder:validation:XValidation:rule="(has(self.structured) ? 1 : 0) + (has(self.shell) ? 1 : 0) + (has(self.code) ? 1 : 0) + (has(self.tool) ? 1 : 0) == 1",message="set exactly one of structured, shell, code and tool"
// +kubebuilder:validation:XValidation:rule="has(self.structured) == has(oldSelf.structured) && (!has(self.structured) || (self.structured.binary == oldSelf.structured.binary && (has(self.structured.args) ? self.structured.args : []) == (has(oldSelf.structured.args) ? oldSelf.structured.args : [])))",message="structured is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="has(self.shell) == has(oldSelf.shell) && (!has(self.shell) || self.shell == oldSelf.shell)",message="shell is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="has(self.code) == has(oldSelf.code) && (!has(self.code) || self.code == oldSelf.code)",message="code is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="has(self.tool) == has(oldSelf.tool) && (!has(self.tool) || self.tool == oldSelf.tool)",message="tool is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="has(self.environmentRef) == has(oldSelf.environmentRef) && (!has(self.environmentRef) || self.environmentRef == oldSelf.environmentRef)",message="environmentRef is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="has(self.skillRef) == has(oldSelf.skillRef) && (!has(self.skillRef) || self.skillRef == oldSelf.skillRef)",message="skillRef is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule=`(has(self.workingDir) ? self.workingDir : "") == (has(oldSelf.workingDir) ? oldSelf.workingDir : "")`,message="workingDir is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="(has(self.env) ? self.env : []) == (has(oldSelf.env) ? oldSelf.env : [])",message="env is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule=`(has(self.stdin) ? self.stdin : "") == (has(oldSelf.stdin) ? oldSelf.stdin : "")`,message="stdin is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="has(self.timeoutSeconds) == has(oldSelf.timeoutSeconds) && (!has(self.timeoutSeconds) || self.timeoutSeconds == oldSelf.timeoutSeconds)",message="timeoutSeconds is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="has(self.ttlSecondsAfterFinished) == has(oldSelf.ttlSecondsAfterFinished) && (!has(self.ttlSecondsAfterFinished) || self.ttlSecondsAfterFinished == oldSelf.ttlSecondsAfterFinished)",message="ttlSecondsAfterFinished is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule=`has(self.requestedBy) == has(oldSelf.requestedBy) && (!has(self.requestedBy) || ((has(self.requestedBy.username) ? self.requestedBy.username : "") == (has(oldSelf.requestedBy.username) ? oldSelf.requestedBy.username : "") && (has(self.requestedBy.uid) ? self.requestedBy.uid : "") == (has(oldSelf.requestedBy.uid) ? oldSelf.requestedBy.uid : "") && (has(self.requestedBy.groups) ? self.requestedBy.groups : []) == (has(oldSelf.requestedBy.groups) ? oldSelf.requestedBy.groups : [])))`,message="requestedBy is immutable"
// +kubebuilder:validation:XValidation:rule="(has(self.trusted) ? self.trusted : false) == (has(oldSelf.trusted) ? oldSelf.trusted : false)",message="trusted is immutable: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)",message="cancel can't be taken back: create a new ToolCall"
// +kubebuilder:validation:XValidation:rule="!has(self.env) || self.env.map(e, size(e.name) + size(e.value)).sum() <= 131072",message="env must not hold more than 131072 bytes (128 KiB) of names and values: pass large data by stdin"
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

	// environmentRef names the ExecutionEnvironment, in the same namespace, that the call runs in. The
	// namespace's default environment when unset. A name that doesn't exist fails the call
	// (EnvironmentNotFound); it never falls back.
	// +optional
	EnvironmentRef *LocalReference `json:"environmentRef,omitempty"`

	// skillRef names a Skill, in the same namespace, whose variables the call gets.
	// +optional
	SkillRef *LocalReference `json:"skillRef,omitempty"`

	// workingDir is the directory that the process starts in. A relative path is joined with the image's
	// working directory. The environment's workingDir when unset.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +optional
	WorkingDir string `json:"workingDir,omitempty"`

	// env are variables of this call alone, over those of the environment. Literal values only.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []CallEnvVar `json:"env,omitempty"`

	// stdin is fed to the process, then its standard input is closed. Empty when unset. At most 524288 characters.
	// +kubebuilder:validation:MaxLength=524288
	// +optional
	Stdin string `json:"stdin,omitempty"`

	// timeoutSeconds is the wanted limit of the process's wall-clock time, in seconds. The policy's
	// timeouts.defaultSeconds when unset; held between 1 and the policy's timeouts.maxSeconds.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// ttlSecondsAfterFinished is how long the finished object stays, in seconds; then it is deleted. The
	// environment's value when unset, then 3600. 0 deletes it at once.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// cancel asks to stop the call. It may only go from false to true. A finished call ignores it.
	// +optional
	Cancel bool `json:"cancel,omitempty"`

	// requestedBy is who created the call. Admission sets it from the request itself, whatever the client wrote.
	// +optional
	RequestedBy *Requester `json:"requestedBy,omitempty"`

	// trusted says that the call's context (environment, directory, variables) was written by an operator
	// of the platform, not by a model, so that blocked variables are kept. Admission refuses it unless the
	// creator may "trust" executionenvironments in this namespace.
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

	// networkAccess asks for network access; the policy's code.networkAccess must allow it. Without it the
	// snippet, and all that it starts, can't open an IP socket.
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
	// +required
	Name string `json:"name"`
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
}

// ToolCall is one tool call of one agent. It is created once, runs at most once and is never edited.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tc,categories=toolcall-dev
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.spec.ttlSecondsAfterFinished`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Exit",type=integer,JSONPath=`.status.exitCode`
// +kubebuilder:printcolumn:name="Environment",type=string,JSONPath=`.status.environment.name`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.status.action.summary`
// +kubebuilder:printcolumn:name="Duration",type=integer,description="wall-clock time of the process in milliseconds",JSONPath=`.status.durationMilliseconds`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Requested-By",type=string,priority=1,JSONPath=`.spec.requestedBy.username`
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

// ToolCallList is a list of ToolCall.
//
// +kubebuilder:object:root=true
type ToolCallList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ToolCall `json:"items"`
}
