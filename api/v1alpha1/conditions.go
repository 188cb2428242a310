package v1alpha1

// Phase is the coarse state of a ToolCall.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Denied;Cancelled
type Phase string

// Phases of a ToolCall. The last four are terminal and never change.
const (
	PhasePending   Phase = "Pending"
	PhaseRunning   Phase = "Running"
	PhaseSucceeded Phase = "Succeeded"
	PhaseFailed    Phase = "Failed"
	PhaseDenied    Phase = "Denied"
	PhaseCancelled Phase = "Cancelled"
)

// Terminal says whether the phase is final.
func (p Phase) Terminal() bool {
	switch p {
	case PhaseSucceeded, PhaseFailed, PhaseDenied, PhaseCancelled:
		return true
	default:
		return false
	}
}

// Condition types of a ToolCall.
const (
	// ConditionAccepted is True once every guard passed, False with the guard's reason otherwise.
	ConditionAccepted = "Accepted"
	// ConditionStarted is True once it is recorded which pod runs the call, just before its process starts.
	ConditionStarted = "Started"
	// ConditionFinished is True once the call has ended, whatever the outcome.
	ConditionFinished = "Finished"
	// ConditionSucceeded is True when the process ended with exit code 0.
	ConditionSucceeded = "Succeeded"
)

// ConditionReady is the condition of ExecutionEnvironment and ExecutionPolicy: usable as written.
const ConditionReady = "Ready"

// ConditionWarm is the condition of an ExecutionEnvironment with a warm pool: its pods wait for calls.
const ConditionWarm = "Warm"

// Reasons of conditions while a call is not finished, and of Ready.
const (
	// ReasonGuardsPassed says that the call may run.
	ReasonGuardsPassed = "GuardsPassed"
	// ReasonNotStarted says that no process was started, yet or ever.
	ReasonNotStarted = "NotStarted"
	// ReasonQueued says that the call waits for its turn: its environment runs as many calls as it may.
	ReasonQueued = "Queued"
	// ReasonSuspended says that the call's Job is suspended: it waits in a queue such as Kueue's.
	ReasonSuspended = "Suspended"
	// ReasonAssigned says that a pod was recorded as the one that runs the call.
	ReasonAssigned = "Assigned"
	// ReasonInProgress says that the call has not ended.
	ReasonInProgress = "InProgress"
	// ReasonFilling says that pods of a warm pool are being started.
	ReasonFilling = "Filling"
	// ReasonPodsFail says that pods of a warm pool can't be started; the message says why.
	ReasonPodsFail = "PodsFail"
	// ReasonReady says that the object can be used.
	ReasonReady = "Ready"
	// ReasonDuplicateDefault says that more than one object is marked as the default.
	ReasonDuplicateDefault = "DuplicateDefault"
	// ReasonPolicyNotFound says that policyName names no ExecutionPolicy.
	ReasonPolicyNotFound = "PolicyNotFound"
	// ReasonInvalidSpec says that a field has a value that can't be used; the message names it.
	ReasonInvalidSpec = "InvalidSpec"
)

// Terminal reasons of a ToolCall that was not denied.
const (
	ReasonCompleted            = "Completed"
	ReasonNonZeroExit          = "NonZeroExit"
	ReasonTimedOut             = "TimedOut"
	ReasonSignaled             = "Signaled"
	ReasonOOMKilled            = "OOMKilled"
	ReasonCommandNotFound      = "CommandNotFound"
	ReasonWorkingDirNotFound   = "WorkingDirNotFound"
	ReasonWorkingDirNotAllowed = "WorkingDirNotAllowed"
	ReasonEnvironmentNotFound  = "EnvironmentNotFound"
	ReasonSkillNotFound        = "SkillNotFound"
	ReasonNoEnvironment        = "NoEnvironment"
	ReasonInvalidEnvironment   = "InvalidEnvironment"
	ReasonInvalidPolicy        = "InvalidPolicy"
	ReasonImagePullFailed      = "ImagePullFailed"
	ReasonPodRejected          = "PodRejected"
	ReasonUnschedulable        = "Unschedulable"
	ReasonStartTimeout         = "StartTimeout"
	ReasonPodLost              = "PodLost"
	ReasonCancelRequested      = "CancelRequested"
)

// Reasons of a denial.
const (
	ReasonEmptyCommand           = "EmptyCommand"
	ReasonAgentNotAllowed        = "AgentNotAllowed"
	ReasonBinaryPathTraversal    = "BinaryPathTraversal"
	ReasonBinaryNotBareName      = "BinaryNotBareName"
	ReasonBinaryNotAllowed       = "BinaryNotAllowed"
	ReasonLaunchNotAllowed       = "LaunchNotAllowed"
	ReasonArgumentNotAllowed     = "ArgumentNotAllowed"
	ReasonEnvNotAllowed          = "EnvNotAllowed"
	ReasonShellDisabled          = "ShellDisabled"
	ReasonShellCommandNotAllowed = "ShellCommandNotAllowed"
	ReasonShellNotParseable      = "ShellNotParseable"
	ReasonCodeDisabled           = "CodeDisabled"
	ReasonLanguageNotAllowed     = "LanguageNotAllowed"
	ReasonModuleNotAllowed       = "ModuleNotAllowed"
	ReasonNetworkNotAllowed      = "NetworkNotAllowed"
	ReasonExecutionTimeTooLong   = "ExecutionTimeTooLong"
	ReasonSourceTooLarge         = "SourceTooLarge"
	ReasonUnknownTool            = "UnknownTool"
	ReasonInvalidArguments       = "InvalidArguments"
	// ReasonGuardError says that a guard could not decide (an error or a panic): the call fails closed.
	ReasonGuardError = "GuardError"
)
