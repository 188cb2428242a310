package v1alpha1

// StreamsStatus describes both output streams.
type StreamsStatus struct {
	// stdout describes the standard output.
	// +required
	Stdout StreamStatus `json:"stdout"`

	// stderr describes the standard error.
	// +required
	Stderr StreamStatus `json:"stderr"`
}

// OutputState says how the output store fares with what it is to keep of a call, or with one artifact.
// +kubebuilder:validation:Enum=Storing;Complete;Lost
type OutputState string

// States of the output of a call, and of an artifact. The last two are final. Where the operator has no output store, there is none.
const (
	// OutputStoring says that bytes are on their way to the output store.
	OutputStoring OutputState = "Storing"
	// OutputComplete says that what is to be kept is in the output store.
	OutputComplete OutputState = "Complete"
	// OutputLost says that bytes didn't reach the output store, and go with the call's pod.
	OutputLost OutputState = "Lost"
)

// StreamState says how much of a stream is in the output store.
// +kubebuilder:validation:Enum=Storing;Complete;Shortened;Lost
type StreamState string

// States of a stream. The last three are final.
const (
	StreamStoring   StreamState = "Storing"
	StreamComplete  StreamState = "Complete"
	StreamShortened StreamState = "Shortened"
	StreamLost      StreamState = "Lost"
)

// StreamStatus describes one output stream: what the process wrote, after values of Secrets were redacted.
type StreamStatus struct {
	// bytes of the stream.
	// +required
	Bytes int64 `json:"bytes"`

	// sha256 of these bytes, in lower-case hexadecimal. Absent when not all were seen.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SHA256 string `json:"sha256,omitempty"`

	// truncated is true when the text in the status isn't all of it.
	// +required
	Truncated bool `json:"truncated"`

	// invalidUTF8 is true when the stream held bytes that aren't UTF-8; they became U+FFFD in the text.
	// +required
	InvalidUTF8 bool `json:"invalidUTF8"`

	// kept is how many bytes of the stream are in the output store: its first and its last part where that isn't all of it.
	// While state is Storing it is how many are there so far, and they can't be read from the store yet. Absent for a stream
	// that the output store isn't asked to keep.
	// +optional
	Kept *int64 `json:"kept,omitempty"`

	// state says how the rest of a stream fares that isn't whole in the status. Storing: its bytes are on their way to the
	// output store, which may take up to five minutes after the call's end. Complete: every byte is there. Shortened: its first
	// and its last part are there, and the middle wasn't kept. Lost: something that should have been kept isn't there, since the
	// output store or the pod was away. The last three are final. Absent for a stream that is whole in the status, and for one
	// that isn't to be kept: the policy's keepBytesPerStream is at most maxBytesPerStream, the operator has no output store, or
	// the call is a file action.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	State StreamState `json:"state,omitempty"`
}
