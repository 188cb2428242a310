package v1alpha1

// Annotations that the project reads.
const (
	// AnnotationDefaultEnvironment marks a namespace's default ExecutionEnvironment when "true".
	AnnotationDefaultEnvironment = "toolcall.dev/is-default-environment"
	// AnnotationDefaultPolicy marks the cluster's default ExecutionPolicy when "true".
	AnnotationDefaultPolicy = "toolcall.dev/is-default-policy"
	// AnnotationTraceParent and AnnotationTraceState carry the W3C trace context of a call's creator, as in
	// the HTTP headers traceparent and tracestate (https://www.w3.org/TR/trace-context/).
	AnnotationTraceParent = "toolcall.dev/traceparent"
	AnnotationTraceState  = "toolcall.dev/tracestate"
	// AnnotationRequestDigest is a hash of what a client asked for that named a call or session by an id of its own. The MCP
	// server sets it, and compares it when the same id comes again.
	AnnotationRequestDigest = "toolcall.dev/request-digest"
	// AnnotationTask has the hashes of the random parts of the ids under which clients of the MCP server ask for a call, separated
	// by commas, the newest first.
	AnnotationTask = "toolcall.dev/task"
)

// AnnotationRestored marks a call or session that came back from a backup or was applied by somebody else. Admission sets
// it, together with spec.cancel of a call or spec.end of a session, so that nothing runs again; its value is one of the
// constants below.
const (
	AnnotationRestored = "toolcall.dev/restored"
	// RestoredRequester says that the object named another user in spec.requestedBy than the one who created it.
	RestoredRequester = "AnotherRequester"
	// RestoredStatus says that the object came with a terminal phase.
	RestoredStatus = "TerminalStatus"
	// RestoredTool says that the object carries the mark of a tool that restores backups or migrates objects.
	RestoredTool = "RestoreTool"
)

// Labels that the operator puts on Jobs, pods and Secrets that it makes.
const (
	// LabelManagedBy is the recommended label; its value is ManagedBy.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of LabelManagedBy on all that the operator makes.
	ManagedBy = "toolcall-operator"
	// LabelCall is the UID of the ToolCall that a Job or pod was made for.
	LabelCall = "toolcall.dev/call-uid"
)
