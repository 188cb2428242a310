package v1alpha1

// Bounds of what an object holds, in bytes. Those of the status are in bytes as JSON has them, where a control character
// takes six, so that a status always fits beside the spec into the 1.5 MiB that etcd takes.
const (
	// MaxEnvBytes bounds the names and values of all variables that one object carries.
	MaxEnvBytes = 128 << 10
	// MaxSourceBytes bounds a code snippet.
	MaxSourceBytes = 512 << 10
	// MaxBytesPerStream bounds a policy's output.maxBytesPerStream.
	MaxBytesPerStream = 256 << 10
	// MaxSpecBytes bounds the spec of a call, as JSON. The admission policy toolcall-create holds it.
	MaxSpecBytes = 1200 << 10

	// MaxStatusBytes bounds the status of a call without stdout, stderr and output, as JSON.
	MaxStatusBytes = 128 << 10
	// MaxMessageBytes bounds status.message, MaxConditionMessageBytes the message of each condition of a call.
	MaxMessageBytes          = 2 << 10
	MaxConditionMessageBytes = 1 << 10
	// MaxConditions is how many conditions a call has.
	MaxConditions = 6
	// MaxEnvNames bounds the entries of status.environment.env, and those of strippedEnv.
	MaxEnvNames = 256
	// MaxEnvNameBytes bounds one name in these lists, MaxEnvNamesBytes all names of one list together.
	MaxEnvNameBytes  = 256
	MaxEnvNamesBytes = 6 << 10
	// MaxPathBytes bounds a path in the status.
	MaxPathBytes = 256
	// MaxPrograms bounds the entries of status.executed, of status.refused, and of each list in status.isolation.
	MaxPrograms = 16
	// MaxArtifacts bounds the entries of status.artifacts, MaxArtifactPathBytes the path of each, MaxArtifactPathsBytes all of
	// them. MaxArtifactsMessageBytes bounds status.artifactsMessage.
	MaxArtifacts             = 100
	MaxArtifactPathBytes     = 256
	MaxArtifactPathsBytes    = 12 << 10
	MaxArtifactsMessageBytes = 1 << 10
	// MaxApprovalSummaryBytes bounds status.approval.summary. MaxApprovalTexts bounds its lists of texts, MaxApprovalTextBytes each
	// text, and MaxApprovalNameBytes the name of each approver.
	MaxApprovalSummaryBytes = 8 << 10
	MaxApprovalTexts        = 8
	MaxApprovalTextBytes    = 128
	MaxApprovalNameBytes    = 256
	// MaxApprovers bounds how many approvals a call can need.
	MaxApprovers = 8
	// MaxReachableHosts bounds the entries of status.network.allowed.
	MaxReachableHosts = 20
	// MaxDeniedHostBytes bounds a host of status.network.denied.
	MaxDeniedHostBytes = 253
	// MaxToolBytes bounds status.action.tool.
	MaxToolBytes = 256
	// MaxSummaryRunes bounds status.action.summary, in characters.
	MaxSummaryRunes = 40
)
