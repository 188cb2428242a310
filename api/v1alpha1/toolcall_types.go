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

// ToolCallStatus is what happened. A terminal phase never changes.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.phase) || !(oldSelf.phase in ['Succeeded', 'Failed', 'Denied', 'Cancelled']) || (has(self.phase) && self.phase == oldSelf.phase)",message="a terminal phase never changes"
type ToolCallStatus struct {
	// phase is Pending, Running, or one of the terminal Succeeded, Failed, Denied and Cancelled.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// reason of the terminal phase, CamelCase.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`

	// message is a sentence for a person about the reason.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Message string `json:"message,omitempty"`

	// conditions are Accepted (the guards passed), Started, Finished (ended, whatever the outcome: what a
	// client waits for) and Succeeded (exit code 0).
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// exitCode of the process; -1 when it has none of its own because a signal or the timeout ended it;
	// absent when nothing ran or nobody knows.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// signal is the name of the signal that ended the process, e.g. SIGKILL.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Signal string `json:"signal,omitempty"`

	// stdout that was captured: the first and last part with a line between when it was longer than the
	// policy's output.maxBytesPerStream. Invalid UTF-8 becomes U+FFFD.
	// +optional
	Stdout string `json:"stdout,omitempty"`

	// stderr that was captured, bounded like stdout.
	// +optional
	Stderr string `json:"stderr,omitempty"`

	// streams says what the process really wrote, so that nobody takes a cut text for a whole one.
	// +optional
	Streams *StreamsStatus `json:"streams,omitempty"`

	// output is one text for a model: stdout, stderr, the exit code when it isn't 0, and how long it took.
	// +optional
	Output string `json:"output,omitempty"`

	// durationMilliseconds is the wall-clock time of the process.
	// +optional
	DurationMilliseconds *int64 `json:"durationMilliseconds,omitempty"`

	// startTime of the process.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`

	// completionTime of the process.
	// +optional
	CompletionTime *metav1.MicroTime `json:"completionTime,omitempty"`

	// timings along the way of the call, as the operator saw them.
	// +optional
	Timings *CallTimings `json:"timings,omitempty"`

	// retrySafe is true when it is certain that the command never started, so that creating the call again
	// repeats nothing. Set on failed and cancelled calls.
	// +optional
	RetrySafe *bool `json:"retrySafe,omitempty"`

	// environment is what was resolved: names and sources, never values.
	// +optional
	Environment *ResolvedEnvironment `json:"environment,omitempty"`

	// action is what the call was mapped onto.
	// +optional
	Action *MappedAction `json:"action,omitempty"`

	// job is the name of the Job that runs the call.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Job string `json:"job,omitempty"`

	// pod is the name of the pod that runs the call, for kubectl logs.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Pod string `json:"pod,omitempty"`

	// node is the name of the node that the pod ran on.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`

	// runner identifies the one process that may report this call's result. Written before the command
	// may start and never changed, it is what makes a call run at most once.
	// +optional
	Runner *RunnerBinding `json:"runner,omitempty"`

	// observedGeneration is the generation that this status was made from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// RunnerBinding ties a call to the one supervisor process that runs it.
type RunnerBinding struct {
	// podUID is the UID of the pod that the call was given to.
	// +kubebuilder:validation:MaxLength=128
	// +required
	PodUID string `json:"podUID"`

	// keyHash is the SHA-256, in lower-case hexadecimal, of the public key that the supervisor made for
	// this one connection; it holds the private key in memory only.
	// +kubebuilder:validation:MaxLength=64
	// +required
	KeyHash string `json:"keyHash"`
}

// StreamsStatus describes both output streams.
type StreamsStatus struct {
	// stdout describes the standard output.
	// +required
	Stdout StreamStatus `json:"stdout"`

	// stderr describes the standard error.
	// +required
	Stderr StreamStatus `json:"stderr"`
}

// StreamStatus describes one output stream as the process wrote it.
type StreamStatus struct {
	// bytes that the process wrote.
	// +required
	Bytes int64 `json:"bytes"`

	// sha256 of all bytes that the process wrote, in lower-case hexadecimal. Absent when not all were seen.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SHA256 string `json:"sha256,omitempty"`

	// truncated is true when the text in the status isn't all of it.
	// +required
	Truncated bool `json:"truncated"`

	// invalidUTF8 is true when the stream held bytes that aren't UTF-8; they became U+FFFD in the text.
	// +required
	InvalidUTF8 bool `json:"invalidUTF8"`
}

// Path is how a call came to its pod.
// +kubebuilder:validation:Enum=Cold;Warm
type Path string

// Paths of a call.
const (
	// PathCold is a pod that was made for the call.
	PathCold Path = "Cold"
	// PathWarm is a pod that was waiting.
	PathWarm Path = "Warm"
)

// CallTimings are milliseconds since the object's creation, as the operator saw it.
type CallTimings struct {
	// acceptedMilliseconds until the guards had passed.
	// +optional
	AcceptedMilliseconds *int64 `json:"acceptedMilliseconds,omitempty"`

	// startedMilliseconds until a runner was ready and the pod was recorded.
	// +optional
	StartedMilliseconds *int64 `json:"startedMilliseconds,omitempty"`

	// finishedMilliseconds until the result had arrived.
	// +optional
	FinishedMilliseconds *int64 `json:"finishedMilliseconds,omitempty"`

	// path is Cold for a pod made for the call, Warm for one that was waiting.
	// +optional
	Path Path `json:"path,omitempty"`
}

// EnvSource says which layer a variable came from.
// +kubebuilder:validation:Enum=Call;Environment;Skill;Default;Image
type EnvSource string

// Sources of a variable, in the order of precedence.
const (
	EnvSourceCall        EnvSource = "Call"
	EnvSourceEnvironment EnvSource = "Environment"
	EnvSourceSkill       EnvSource = "Skill"
	EnvSourceDefault     EnvSource = "Default"
	EnvSourceImage       EnvSource = "Image"
)

// ResolvedEnvironment is where the call ran and with which variables.
type ResolvedEnvironment struct {
	// name of the ExecutionEnvironment in effect.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`

	// workingDir that the process started in, symbolic links resolved.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	WorkingDir string `json:"workingDir,omitempty"`

	// trusted says whether blocked variables were kept.
	// +required
	Trusted bool `json:"trusted"`

	// env are the names of the process's variables, sorted, each with its source.
	// +kubebuilder:validation:MaxItems=2048
	// +listType=atomic
	// +optional
	Env []ResolvedEnvVar `json:"env,omitempty"`

	// strippedEnv are the names that the blocklist removed, sorted.
	// +kubebuilder:validation:MaxItems=2048
	// +listType=atomic
	// +optional
	StrippedEnv []string `json:"strippedEnv,omitempty"`
}

// ResolvedEnvVar is a variable's name and where it came from.
type ResolvedEnvVar struct {
	// name of the variable.
	// +required
	Name string `json:"name"`

	// source is the layer that set it.
	// +required
	Source EnvSource `json:"source"`
}

// ActionType is one of the three ways to run something.
// +kubebuilder:validation:Enum=Structured;Shell;Code
type ActionType string

// Action types.
const (
	ActionStructured ActionType = "Structured"
	ActionShell      ActionType = "Shell"
	ActionCode       ActionType = "Code"
)

// MappedAction is what a call was mapped onto.
type MappedAction struct {
	// type is Structured, Shell or Code.
	// +required
	Type ActionType `json:"type"`

	// tool is the name that was checked against access: the binary, bash for Shell, the language for Code.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Tool string `json:"tool"`

	// summary is the first 40 characters of what runs.
	// +kubebuilder:validation:MaxLength=40
	// +optional
	Summary string `json:"summary,omitempty"`
}

// ToolCall is one tool call of one agent. It is created once, runs at most once and is never edited.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tc,categories=all;toolcalls
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

	// status is what happened.
	// +optional
	Status ToolCallStatus `json:"status,omitempty"`
}

// ToolCallList is a list of ToolCall.
//
// +kubebuilder:object:root=true
type ToolCallList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ToolCall `json:"items"`
}
