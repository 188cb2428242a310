package audit

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// Schema names the format of records. Fields may be added to it; a change of what is there is another schema.
const Schema = "toolcall.dev/audit/v1"

// Kind says what a record is about.
type Kind string

// Kinds of records.
const (
	KindCall     Kind = "Call"
	KindSession  Kind = "Session"
	KindTransfer Kind = "Transfer"
	KindApproval Kind = "Approval"
)

// Record is one line of the audit log. The reference of the audit log describes its fields.
type Record struct {
	Schema string `json:"schema"`
	// ID is the same whenever the same thing is recorded. The fields up to here are the beginning of each line.
	ID        string           `json:"id"`
	Time      metav1.MicroTime `json:"time"`
	Kind      Kind             `json:"kind"`
	Namespace string           `json:"namespace"`
	// Name and UID are those of the call, of the session that a transfer belongs to, or of the call that a person decided about.
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`

	Who       *Who                `json:"who,omitempty"`
	What      *What               `json:"what,omitempty"`
	Where     *Where              `json:"where,omitempty"`
	Decision  *Decision           `json:"decision,omitempty"`
	Approvals []Approval          `json:"approvals,omitempty"`
	Outcome   *Outcome            `json:"outcome,omitempty"`
	Streams   *Streams            `json:"streams,omitempty"`
	Times     *Times              `json:"times,omitempty"`
	Usage     *v1alpha1.CallUsage `json:"usage,omitempty"`
}

// Who is the requester, as the API server authenticated it unless it is unverified.
type Who struct {
	Username string `json:"username"`
	UID      string `json:"uid,omitempty"`
	// Groups are the first maxGroups, OmittedGroups counts the others.
	Groups        []string `json:"groups,omitempty"`
	OmittedGroups int      `json:"omittedGroups,omitempty"`
	// Unverified says that no admission policy vouches for it: whoever created the object wrote it.
	Unverified bool `json:"unverified,omitempty"`
}

// What was asked for.
type What struct {
	// Type is a v1alpha1.ActionType, of a transfer its direction, of an approval the decision.
	Type string `json:"type,omitempty"`
	Tool string `json:"tool,omitempty"`
	// Binary is the program of a structured call, Operation that of a file action, Language that of a snippet.
	Binary    string `json:"binary,omitempty"`
	Operation string `json:"operation,omitempty"`
	Language  string `json:"language,omitempty"`
	// Path is that of a transfer's file.
	Path string `json:"path,omitempty"`
	// Call is the call whose standard input a transfer is.
	Call string `json:"call,omitempty"`
	// SHA256 is that of the action, of a transfer's file, or of the summary that a person decided about. Arguments is the action itself,
	// where the policy lets it be recorded.
	SHA256    string `json:"sha256,omitempty"`
	Arguments string `json:"arguments,omitempty"`
}

// Where it ran.
type Where struct {
	Environment string `json:"environment,omitempty"`
	Image       string `json:"image,omitempty"`
	Session     string `json:"session,omitempty"`
	Pod         string `json:"pod,omitempty"`
	Node        string `json:"node,omitempty"`
	WorkingDir  string `json:"workingDir,omitempty"`
}

// Decision is whether the guards let it run.
type Decision struct {
	Allowed bool `json:"allowed"`
	// Reason is why not, Rule the field of the policy, or the other rule, that said so; of spec.rules with the name. The message can hold
	// arguments.
	Reason  string `json:"reason,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message,omitempty"`
}

// Approval is a person's decision.
type Approval struct {
	Username string `json:"username"`
	Decision string `json:"decision"`
}

// Outcome is how it ended.
type Outcome struct {
	Phase    string `json:"phase,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	ExitCode *int32 `json:"exitCode,omitempty"`
	Signal   string `json:"signal,omitempty"`
	// Deleted says that the object was deleted before it had ended: phase is what it was then.
	Deleted bool `json:"deleted,omitempty"`
	// Status is the HTTP status of a transfer, Bytes how much was transferred.
	Status int   `json:"status,omitempty"`
	Bytes  int64 `json:"bytes,omitempty"`
}

// Streams are size and SHA-256 of what a call wrote, after redaction.
type Streams struct {
	Stdout Stream `json:"stdout"`
	Stderr Stream `json:"stderr"`
	// Artifacts counts the files that were kept, ArtifactBytes their bytes.
	Artifacts     int   `json:"artifacts,omitempty"`
	ArtifactBytes int64 `json:"artifactBytes,omitempty"`
}

// Stream is one of them.
type Stream struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
}

// Times are when it was created, when its process started and completed, and when it had ended.
type Times struct {
	Created   *metav1.Time      `json:"created,omitempty"`
	Started   *metav1.MicroTime `json:"started,omitempty"`
	Completed *metav1.MicroTime `json:"completed,omitempty"`
	Ended     *metav1.Time      `json:"ended,omitempty"`
}

// Sink takes records.
type Sink interface {
	// Write returns an error if the record isn't written. The same record comes again then.
	Write(Record) error
}

// line is the record as a line. JSON has no line end inside: whatever a text holds, it is escaped.
func (r *Record) line() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(r) // of types that always encode
	return b.Bytes()
}
