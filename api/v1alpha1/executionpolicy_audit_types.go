package v1alpha1

// AuditPolicy says what the audit log says of a call besides who did what where, and how it ended.
type AuditPolicy struct {
	// arguments puts the action itself (the arguments, the script, the source, the file operation) and the messages about its
	// end into the record of each call, the first 16384 bytes. They can hold secrets, and the audit log outlives the call.
	// Default false: the record has the action's SHA-256.
	// +optional
	Arguments *bool `json:"arguments,omitempty"`
}
