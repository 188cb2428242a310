package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ToolCallStatus is what happened. A terminal phase never changes: the operator alone writes the status, each time under
// the condition that nobody else has since.
type ToolCallStatus struct {
	// phase is Pending, Running, or one of the terminal Succeeded, Failed, Denied and Cancelled.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// reason of the terminal phase, CamelCase; of a call in phase Pending, what it waits for. A call that starts within a
	// second never says that it waits.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`

	// message is a sentence for a person about the reason, at most 2048 bytes as JSON.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// conditions are Accepted (the guards passed), Started, Finished (ended, whatever the outcome: what a
	// client waits for) and Succeeded (exit code 0). Started and Finished are False until they are True; Succeeded is
	// Unknown until the call has ended.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// exitCode of a process that ended by itself; absent when a signal, the time limit, a cancel or a lack of memory ended it, when
	// nothing ran and when nobody knows.
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

	// streams has the size and the hash of all that the process wrote, after values of Secrets were redacted, so that nobody takes
	// a cut text for a whole one.
	// +optional
	Streams *StreamsStatus `json:"streams,omitempty"`

	// output is one text for a model: stdout and stderr in the order in which they arrived, as a terminal shows them in the end; how the
	// process ended, unless with exit code 0; what was refused to it and what is left out; and how long it took.
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

	// usage is what the call's processes took of their node. Absent for file actions, and when no process was started or
	// nobody knows how it ended.
	// +structType=atomic
	// +optional
	Usage *CallUsage `json:"usage,omitempty"`

	// timings say when the call was accepted, started and finished.
	// +optional
	Timings *CallTimings `json:"timings,omitempty"`

	// retrySafe is true when it is certain that the command never started, so that creating the call again
	// repeats nothing. Set on failed and cancelled calls.
	// +optional
	RetrySafe *bool `json:"retrySafe,omitempty"`

	// timeoutSeconds is the limit in effect of the process's wall-clock time, after the policy's default and bounds, in
	// seconds rounded up.
	// +optional
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// environment is what was resolved: names and sources, never values.
	// +optional
	Environment *ResolvedEnvironment `json:"environment,omitempty"`

	// session is the session that the call belongs to.
	// +optional
	Session *CallSessionStatus `json:"session,omitempty"`

	// file is what a file action did.
	// +optional
	File *FileStatus `json:"file,omitempty"`

	// outputState sums up what streams and artifacts say of the output store: Storing while anything is on its way there, then
	// Lost when anything is lost, otherwise Complete. Absent when the output store isn't asked to keep anything of the call.
	// +optional
	OutputState OutputState `json:"outputState,omitempty"`

	// artifacts are the files that spec.collect kept, in the order of its globs, and then of their paths. All
	// paths together take at most 12288 bytes as JSON.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +optional
	Artifacts []Artifact `json:"artifacts,omitempty"`

	// omittedArtifacts counts the files that spec.collect matched and that weren't kept.
	// +optional
	OmittedArtifacts int64 `json:"omittedArtifacts,omitempty"`

	// artifactsMessage says what spec.collect didn't keep, and why, at most 1024 bytes as JSON. Absent when it kept all.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ArtifactsMessage string `json:"artifactsMessage,omitempty"`

	// action is what the call was mapped onto.
	// +optional
	Action *MappedAction `json:"action,omitempty"`

	// executed are the programs that the call's processes executed, in the order of their first execution. Only where
	// the kernel holds the list of programs (binaries.enforcement of the policy).
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Executed []ExecutedProgram `json:"executed,omitempty"`

	// omittedExecuted counts the executions of programs that aren't in executed.
	// +optional
	OmittedExecuted int64 `json:"omittedExecuted,omitempty"`

	// refused are the programs that the call's processes tried to execute and that were refused, in the order of their
	// first attempt.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Refused []RefusedProgram `json:"refused,omitempty"`

	// omittedRefused counts the refused executions of programs that aren't in refused.
	// +optional
	OmittedRefused int64 `json:"omittedRefused,omitempty"`

	// isolation says which walls held the call's processes, as their runner found out; absent when the command wasn't
	// started, or the runner doesn't say.
	// +structType=atomic
	// +optional
	Isolation *Isolation `json:"isolation,omitempty"`

	// network is what the call had of the network, and was refused; absent for file actions, and where no process was
	// started.
	// +optional
	Network *NetworkStatus `json:"network,omitempty"`

	// redactions say how often the value of a Secret was replaced in what left the call: the first 16 by name and stream; more
	// are replaced and not counted. The bytes and sums of streams are those of what was left.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Redactions []Redaction `json:"redactions,omitempty"`

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

// CallSessionStatus says where in a session a call ran.
type CallSessionStatus struct {
	// name of the ToolSession.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// incarnation of the session that the call was handed to: its first pod is 1. Absent when it was handed to none.
	// +optional
	Incarnation int32 `json:"incarnation,omitempty"`

	// sequence orders the session's calls: the resourceVersion that the call was created with.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`
}

// RunnerBinding ties a call, or a session, to the one runner process that runs it.
type RunnerBinding struct {
	// podUID is the UID of the pod that the call or the session was given to.
	// +kubebuilder:validation:MaxLength=128
	// +required
	PodUID string `json:"podUID"`

	// keyHash is the SHA-256, in lower-case hexadecimal, of the public key that the runner process made when it
	// started; the private key stays in its memory.
	// +kubebuilder:validation:MaxLength=64
	// +required
	KeyHash string `json:"keyHash"`

	// decision is what was decided about the call, encrypted: only the operator can read or make it. It is there until
	// the call has ended, so that nobody decides again after a restart. Of a session it is what the session began with.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	Decision string `json:"decision,omitempty"`
}

// Path is how a call came to its pod.
// +kubebuilder:validation:Enum=Cold;Warm;Session
type Path string

// Paths of a call.
const (
	// PathCold is a pod that was made for the call.
	PathCold Path = "Cold"
	// PathWarm is a pod that was waiting.
	PathWarm Path = "Warm"
	// PathSession is the pod of the call's session.
	PathSession Path = "Session"
)

// CallTimings are milliseconds since the call's creation (since the operator first saw it, if that was within a second).
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

	// path is Cold for a pod made for the call, Warm for one that was waiting, Session for the pod of its session.
	// +optional
	Path Path `json:"path,omitempty"`
}

// EnvSource says which layer a variable came from.
// +kubebuilder:validation:Enum=Call;Environment;Skill;Default;Image
type EnvSource string

// Sources of a variable, in the order of precedence.
const (
	// EnvSourceCall is the call's own env, and that of its session.
	EnvSourceCall EnvSource = "Call"
	// EnvSourceEnvironment is the environment that the call or its session names.
	EnvSourceEnvironment EnvSource = "Environment"
	// EnvSourceSkill is the skill that the call or its session names.
	EnvSourceSkill EnvSource = "Skill"
	// EnvSourceDefault is the namespace's default environment, where none or another one is named.
	EnvSourceDefault EnvSource = "Default"
	// EnvSourceImage is the image.
	EnvSourceImage EnvSource = "Image"
)

// ResolvedEnvironment is where the call ran and with which variables.
type ResolvedEnvironment struct {
	// name of the ExecutionEnvironment in effect.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`

	// workingDir that the process started in, symbolic links resolved. Of a path that takes more than 256 bytes as
	// JSON the end, after an ellipsis.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	WorkingDir string `json:"workingDir,omitempty"`

	// trusted says whether blocked variables were kept.
	// +required
	Trusted bool `json:"trusted"`

	// env are the names of the process's variables, sorted, each with its source: the first 256, and fewer where the
	// names are long.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Env []ResolvedEnvVar `json:"env,omitempty"`

	// omittedEnv is how many more variables the process had than env lists.
	// +optional
	OmittedEnv int32 `json:"omittedEnv,omitempty"`

	// strippedEnv are the names that the blocklist removed, sorted: the first 256, and fewer where the names are long.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	StrippedEnv []string `json:"strippedEnv,omitempty"`

	// omittedStrippedEnv is how many more names the blocklist removed than strippedEnv lists.
	// +optional
	OmittedStrippedEnv int32 `json:"omittedStrippedEnv,omitempty"`
}

// ResolvedEnvVar is a variable's name and where it came from.
type ResolvedEnvVar struct {
	// name of the variable.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Name string `json:"name"`

	// source is the layer that set it.
	// +required
	Source EnvSource `json:"source"`
}

// ActionType is one of the ways to do something.
// +kubebuilder:validation:Enum=Structured;Shell;Code;File
type ActionType string

// Action types.
const (
	// ActionStructured is one program with its arguments.
	ActionStructured ActionType = "Structured"
	// ActionShell is a command line.
	ActionShell ActionType = "Shell"
	// ActionCode is a snippet of a programming language.
	ActionCode ActionType = "Code"
	// ActionFile is an operation on files.
	ActionFile ActionType = "File"
)

// MappedAction is what a call was mapped onto.
type MappedAction struct {
	// type is Structured, Shell, Code or File.
	// +required
	Type ActionType `json:"type"`

	// tool is the name that was checked against access: the binary, bash for Shell, the language for
	// Code, file.read or file.write for File.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Tool string `json:"tool"`

	// summary is the first 40 characters of what runs.
	// +kubebuilder:validation:MaxLength=40
	// +optional
	Summary string `json:"summary,omitempty"`
}
