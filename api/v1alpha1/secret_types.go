package v1alpha1

import corev1 "k8s.io/api/core/v1"

// SecretForm says how a command gets a Secret's value.
// +kubebuilder:validation:Enum=Env;File
type SecretForm string

// Forms of a Secret's value.
const (
	// SecretAsEnv puts the value into a variable.
	SecretAsEnv SecretForm = "Env"
	// SecretAsFile puts the value into a file, and the file's path into a variable.
	SecretAsFile SecretForm = "File"
)

// ToolSecret is a value of a Secret that calls of certain tools get, and no others.
type ToolSecret struct {
	// name of the variable that holds the value, or the file's path: letters, digits and underscores, not starting with a
	// digit. It counts as one of env, over one of the same name there. The policy's envBlocklist applies to it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +required
	Name string `json:"name"`

	// secretKeyRef selects a key of a Secret in the same namespace. The kubelet reads it when the pod starts: a warm pod or a
	// session has the value that the Secret had then. A pod starts without a value that doesn't exist, and a call that needs it
	// fails as InvalidEnvironment; with optional, the call runs without. Also with as File, the value has to be one that a
	// container's variable can have: UTF-8, no NUL byte, less than 128 KiB. The kubelet doesn't start pods with another one.
	// +required
	SecretKeyRef corev1.SecretKeySelector `json:"secretKeyRef"`

	// as is Env (the default) or File. The file is in a directory of the call below /tmp/.toolcall-files, with mode 0400, and is
	// gone when the call's processes are. File actions, transfers and artifacts of calls don't reach it. While they run, other calls of the same session can read it where their policies let them
	// read /tmp.
	// +kubebuilder:default=Env
	// +optional
	As SecretForm `json:"as,omitempty"`

	// tools are the tools whose calls get the value: the tool that access is checked for, as in status.action.tool, such as
	// git of a structured call, bash of each shell call, and python of a code call. At most 64.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=set
	// +required
	Tools []string `json:"tools"`

	// redact replaces the value in what calls of the environment print and read, whatever their tool, where the policy's
	// output.redaction is KnownValues. Default true. Values of less than 8 bytes are never replaced.
	// +kubebuilder:default=true
	// +optional
	Redact *bool `json:"redact,omitempty"`
}

// RedactedStream is where a value was replaced.
// +kubebuilder:validation:Enum=Stdout;Stderr;Message
type RedactedStream string

// Where values are replaced.
const (
	// RedactedStdout and RedactedStderr are the streams. The result of a file action is in the first.
	RedactedStdout RedactedStream = "Stdout"
	RedactedStderr RedactedStream = "Stderr"
	// RedactedMessage is what else the runner says of the call: a message, a path, the name of an artifact.
	RedactedMessage RedactedStream = "Message"
)

// Redaction says how often a value was replaced.
type Redaction struct {
	// name is the variable's, which is in the mark too.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Name string `json:"name"`

	// stream is where: Stdout, Stderr, or Message for what else the runner says of the call.
	// +required
	Stream RedactedStream `json:"stream"`

	// count is how often.
	// +required
	Count int64 `json:"count"`
}
