package v1alpha1

// "make generate" writes from this file the page of conditions and reasons, the runner's constants, and the tables from which the
// client libraries choose an error. A reason that a call ends with says "toolcall:runner" if the runner reports it, otherwise
// "toolcall:error", and then the class of error, unless that follows from the phase.

import "slices"

// Phase is the coarse state of a ToolCall.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Denied;Cancelled
type Phase string

// Phases of a ToolCall. The last four are terminal and never change.
const (
	// PhasePending waits: for its turn, or for its pod.
	PhasePending Phase = "Pending"
	// PhaseRunning has been given to a pod.
	PhaseRunning Phase = "Running"
	// PhaseSucceeded ran, and its process ended with exit code 0.
	PhaseSucceeded Phase = "Succeeded"
	// PhaseFailed ended in any other way than the rest; the reason says whether its process ran.
	PhaseFailed Phase = "Failed"
	// PhaseDenied was refused by a guard: nothing ran.
	PhaseDenied Phase = "Denied"
	// PhaseCancelled was stopped because somebody set spec.cancel.
	PhaseCancelled Phase = "Cancelled"
)

// TerminalPhases are those that never change.
func TerminalPhases() []Phase {
	return []Phase{PhaseSucceeded, PhaseFailed, PhaseDenied, PhaseCancelled}
}

// Terminal says whether the phase is final.
func (p Phase) Terminal() bool { return slices.Contains(TerminalPhases(), p) }

// Condition types of a ToolCall. Started and Finished are False until they are True. Succeeded is Unknown until it is
// decided, so that "kubectl wait --for=condition=Succeeded=False" returns at a failure and not at once.
const (
	// ConditionAccepted is True once every guard passed, False with the guard's reason otherwise. It is Unknown while
	// a guard can't decide.
	ConditionAccepted = "Accepted"
	// ConditionStarted is True once it is recorded which pod runs the call, just before its process starts. It is False
	// until then, and stays False when nothing ever started.
	ConditionStarted = "Started"
	// ConditionFinished is True once the call has ended, whatever the outcome, and False until then.
	ConditionFinished = "Finished"
	// ConditionSucceeded is True when the process ended with exit code 0, False when the call ended in any other way, and
	// Unknown until the call has ended.
	ConditionSucceeded = "Succeeded"
	// ConditionApproved is there when the call's policy has people decide about it: Unknown while the call waits for them, True
	// once enough of them approved, False when one of them denied it or nobody answered in time.
	ConditionApproved = "Approved"
	// ConditionOutputStored is there when the output store took longer than two seconds after the call's end to take what the
	// status leaves out, or failed to: False while that goes on or when something is lost, True when it succeeded in the end.
	// Of any other call, status.streams says all.
	ConditionOutputStored = "OutputStored"
)

// Reasons of the condition OutputStored of a ToolCall.
const (
	// ReasonOutputBeingStored says that the output is on its way to the output store.
	ReasonOutputBeingStored = "OutputBeingStored"
	// ReasonOutputStoreFailing says that the output store doesn't take the output at the moment: it is away, or has no room.
	ReasonOutputStoreFailing = "OutputStoreFailing"
	// ReasonOutputKept says that the output was stored in the end.
	ReasonOutputKept = "OutputKept"
	// ReasonOutputLost says that something of the output that should have been kept isn't stored.
	ReasonOutputLost = "OutputLost"
)

// MessageReadyBut begins the message of an environment's Ready that is True although something isn't held there.
const MessageReadyBut = "Calls can run, but "

// Condition types of ExecutionEnvironment, ExecutionPolicy, ToolBudget and ToolSession.
const (
	// ConditionReady is True when the object can be used as written. Of a ToolSession it is True while its pod takes
	// calls: a call whose turn it is starts at once.
	ConditionReady = "Ready"
	// ConditionEnded is True once a session takes no calls any more, with the reason of its end, and False until then.
	// Only a ToolSession has it.
	ConditionEnded = "Ended"
	// ConditionWarm is True while at least one pod of an environment's warm pool waits for a call. Only an
	// ExecutionEnvironment with a warm pool has it.
	ConditionWarm = "Warm"
	// ConditionWeak is True when something in a policy is weaker than it looks; the message says what. The policy can be
	// used. Only an ExecutionPolicy has it.
	ConditionWeak = "Weak"
)

// Reasons of the conditions of a ToolCall that has not ended.
const (
	// ReasonGuardsPassed says that the call may run.
	ReasonGuardsPassed = "GuardsPassed"
	// ReasonUndecided says that a guard can't decide now, because nobody answers whether the requester may use the tool.
	// It is asked again, for as long as the call may wait for its start; then the call ends with GuardError.
	ReasonUndecided = "Undecided"
	// ReasonNotStarted says that no process was started, yet or ever.
	ReasonNotStarted = "NotStarted"
	// ReasonQueued says that the call waits for its turn: its environment or its session runs as many calls as it may.
	ReasonQueued = "Queued"
	// ReasonEnvironmentSuspended says that the call waits because its environment lets no new call start.
	ReasonEnvironmentSuspended = "EnvironmentSuspended"
	// ReasonBudgetExhausted says that the call, or the session, waits because a ToolBudget that covers its requester is used up. The
	// message names the budget, the limit, and what it waits for. Or the operator has just started, and reads what is in use of the
	// namespace's budgets.
	ReasonBudgetExhausted = "BudgetExhausted"
	// ReasonQuotaExceeded says that the call's Job or pod waits for room in a ResourceQuota, which the message names. What is more
	// than the whole quota ends the call with PodRejected.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonSuspended says that the call's Job is suspended: it waits in a queue such as Kueue's.
	ReasonSuspended = "Suspended"
	// ReasonSessionStarting says that the session's pod is being started. The session's condition Ready has it too.
	ReasonSessionStarting = "SessionStarting"
	// ReasonSessionSuspended says that the session has no pod until its spec.suspend is false or, where it was suspended
	// for idleness, until its next call. The session's condition Ready has it too.
	ReasonSessionSuspended = "SessionSuspended"
	// ReasonAwaitingApproval says that the call waits for people to decide about it; status.approval says what they decide
	// about, and until when.
	ReasonAwaitingApproval = "AwaitingApproval"
	// ReasonApproved says that enough people approved the call.
	ReasonApproved = "Approved"
	// ReasonAssigned says that a pod was recorded as the one that runs the call.
	ReasonAssigned = "Assigned"
	// ReasonInProgress says that the call or the session has not ended.
	ReasonInProgress = "InProgress"
)

// Reasons of the conditions of ExecutionEnvironment and ExecutionPolicy. A policy that can't be used has
// InvalidPolicy on its environments.
const (
	// ReasonFilling says that pods of a warm pool are being started.
	ReasonFilling = "Filling"
	// ReasonPodsFail says that pods of a warm pool can't be started; the message says why.
	ReasonPodsFail = "PodsFail"
	// ReasonReady says that the object can be used.
	ReasonReady = "Ready"
	// ReasonDuplicateDefault says that more than one object is marked as the default.
	ReasonDuplicateDefault = "DuplicateDefault"
	// ReasonPolicyNotFound says that policyRef names no ExecutionPolicy.
	ReasonPolicyNotFound = "PolicyNotFound"
	// ReasonWarnings says that something in a policy is weaker than it looks.
	ReasonWarnings = "Warnings"
	// ReasonNoWarnings says that nothing in a policy is weaker than it looks.
	ReasonNoWarnings = "NoWarnings"
	// ReasonInvalidSpec says that a field has a value that can't be used; the message names it.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonExampleFailed says that an example of a policy comes out otherwise than it expects; the message names it. Nothing runs
	// under the policy.
	ReasonExampleFailed = "ExampleFailed"
)

// Reasons of the condition Accepted of a ToolCallApproval. A decision that came too late for its call has ApprovalExpired.
const (
	// ReasonDecisionCounts says that the decision was counted for its call.
	ReasonDecisionCounts = "DecisionCounts"
	// ReasonOwnCall says that who approved the call also created it: somebody else has to. Denying one's own call counts.
	ReasonOwnCall = "OwnCall"
	// ReasonWrongDigest says that the decision is about something else than what the call waits for now.
	ReasonWrongDigest = "WrongDigest"
	// ReasonDuplicateDecision says that the same person approved the call before.
	ReasonDuplicateDecision = "DuplicateDecision"
	// ReasonAlreadyDecided says that the call had been approved or denied by the time the decision came.
	ReasonAlreadyDecided = "AlreadyDecided"
	// ReasonCallEnded says that the call had ended otherwise by the time the decision came.
	ReasonCallEnded = "CallEnded"
	// ReasonApproverUnknown says that nobody is known to have made the decision, because the admission policy that checks it isn't in
	// force.
	ReasonApproverUnknown = "ApproverUnknown"
	// ReasonApprovalNotNeeded says that the call waits for no decision.
	ReasonApprovalNotNeeded = "ApprovalNotNeeded"
)

// Reasons of a ToolSession. One that lost its pod, and has no workspace claim, ends with PodLost.
const (
	// ReasonTooManySessions says that the session waits: its environment, or its requester in that environment, has as
	// many sessions as spec.sessions of the environment allows.
	ReasonTooManySessions = "TooManySessions"
	// ReasonEndRequested says that somebody set spec.end or deleted the session, or that admission set spec.end because
	// the session came back from a backup.
	ReasonEndRequested = "EndRequested"
	// ReasonIdleTimeout says that the session had no call for idleTimeoutSeconds.
	ReasonIdleTimeout = "IdleTimeout"
	// ReasonMaxLifetime says that the session was as old as maxLifetimeSeconds allows.
	ReasonMaxLifetime = "MaxLifetime"
	// ReasonMaxCalls says that the session took as many calls as maxCalls allows.
	ReasonMaxCalls = "MaxCalls"
	// ReasonStartFailed says that the session's pod could not be started. The message has the reason that a call would
	// have ended with.
	ReasonStartFailed = "StartFailed"
)

// Terminal reasons of a ToolCall that was not denied.
const (
	// ReasonCompleted says that the process ended with exit code 0.
	ReasonCompleted = "Completed" //toolcall:runner
	// ReasonNonZeroExit says that the process ended with another exit code than 0.
	ReasonNonZeroExit = "NonZeroExit" //toolcall:runner NonZeroExit
	// ReasonTimedOut says that the process was stopped at its time limit.
	ReasonTimedOut = "TimedOut" //toolcall:runner TimedOut
	// ReasonSignaled says that a signal ended the process; the status names it.
	ReasonSignaled = "Signaled" //toolcall:runner NonZeroExit
	// ReasonOOMKilled says that the kernel killed the process because it needed too much memory.
	ReasonOOMKilled = "OOMKilled" //toolcall:runner NonZeroExit
	// ReasonCommandNotFound says that the image lacks the program, shell or interpreter, or it can't be executed.
	ReasonCommandNotFound = "CommandNotFound" //toolcall:runner NotFound
	// ReasonWorkingDirNotFound says that the working directory does not exist in the pod.
	ReasonWorkingDirNotFound = "WorkingDirNotFound" //toolcall:runner NotFound
	// ReasonWorkingDirNotAllowed says that the working directory lies outside the environment's allowedPaths.
	ReasonWorkingDirNotAllowed = "WorkingDirNotAllowed" //toolcall:runner Forbidden
	// ReasonEnvironmentNotFound says that environmentRef names no ExecutionEnvironment of the namespace.
	ReasonEnvironmentNotFound = "EnvironmentNotFound" //toolcall:error NotFound
	// ReasonSkillNotFound says that skillRef names no Skill of the namespace.
	ReasonSkillNotFound = "SkillNotFound" //toolcall:error NotFound
	// ReasonNoEnvironment says that the call names no environment and the namespace has no default one.
	ReasonNoEnvironment = "NoEnvironment" //toolcall:error NotFound
	// ReasonInvalidEnvironment says that the environment cannot be used as written; the message names what is wrong.
	ReasonInvalidEnvironment = "InvalidEnvironment" //toolcall:runner NotStarted
	// ReasonInvalidPolicy says that the policy does not exist or cannot be used as written: nothing runs under it.
	ReasonInvalidPolicy = "InvalidPolicy" //toolcall:error NotStarted
	// ReasonImagePullFailed says that the environment's image can't be pulled.
	ReasonImagePullFailed = "ImagePullFailed" //toolcall:error NotStarted
	// ReasonPodRejected says that the API server or the kubelet refused the call's Job or pod, by quota or admission for instance.
	ReasonPodRejected = "PodRejected" //toolcall:error NotStarted
	// ReasonUnschedulable says that no node took the pod within startTimeoutSeconds.
	ReasonUnschedulable = "Unschedulable" //toolcall:error NotStarted
	// ReasonStartTimeout says that the process did not start within startTimeoutSeconds.
	ReasonStartTimeout = "StartTimeout" //toolcall:runner NotStarted
	// ReasonPodLost says that the pod is gone and left no result. With retrySafe false the command may have run.
	ReasonPodLost = "PodLost" //toolcall:runner PodLost
	// ReasonSessionNotFound says that sessionRef names no ToolSession of the namespace, or one with another uid.
	ReasonSessionNotFound = "SessionNotFound" //toolcall:error NotFound
	// ReasonSessionEnded says that the call's session ended before the call started.
	ReasonSessionEnded = "SessionEnded" //toolcall:runner SessionEnded
	// ReasonIsolationUnavailable says that the policy has the kernel hold what the call executes, reads or writes, and
	// that the node can't, or that the image has a listed program that runs others without executing them; the message
	// names what is missing, or the program. Nothing was started. On an environment's Ready it says that runners of the
	// environment were on such a node, or that calls met such a program.
	ReasonIsolationUnavailable = "IsolationUnavailable" //toolcall:runner NotStarted
	// ReasonCancelRequested says that somebody set spec.cancel.
	ReasonCancelRequested = "CancelRequested" //toolcall:runner
)

// Terminal reasons of a ToolCall with a file action that failed.
const (
	// ReasonFileNotFound says that there is no file or directory of that path.
	ReasonFileNotFound = "FileNotFound" //toolcall:runner NotFound
	// ReasonFileExists says that there is one already.
	ReasonFileExists = "FileExists" //toolcall:runner FileFailed
	// ReasonIsDirectory says that the path is a directory's.
	ReasonIsDirectory = "IsDirectory" //toolcall:runner FileFailed
	// ReasonNotDirectory says that the path, or a part of it, isn't a directory's.
	ReasonNotDirectory = "NotDirectory" //toolcall:runner FileFailed
	// ReasonPathNotAllowed says that the path leads where the policy doesn't let the call read or write.
	ReasonPathNotAllowed = "PathNotAllowed" //toolcall:runner Forbidden
	// ReasonPermissionDenied says that the pod's user may not do that.
	ReasonPermissionDenied = "PermissionDenied" //toolcall:runner Forbidden
	// ReasonFileTooLarge says that the file is larger than files.maxReadBytes or files.maxWriteBytes of the policy.
	ReasonFileTooLarge = "FileTooLarge" //toolcall:runner FileFailed
	// ReasonEditNotFound says that oldString isn't in the file.
	ReasonEditNotFound = "EditNotFound" //toolcall:runner FileFailed
	// ReasonEditAmbiguous says that oldString is in the file more than once.
	ReasonEditAmbiguous = "EditAmbiguous" //toolcall:runner FileFailed
	// ReasonFileChanged says that the file's content isn't the one of ifSHA256, or changed while it was edited.
	ReasonFileChanged = "FileChanged" //toolcall:runner FileFailed
	// ReasonNoSpace says that the volume is full, or a quota is used up.
	ReasonNoSpace = "NoSpace" //toolcall:runner FileFailed
	// ReasonInvalidPattern says that the pattern isn't a glob, or no RE2 expression.
	ReasonInvalidPattern = "InvalidPattern" //toolcall:runner FileFailed
	// ReasonFileError says that the file system couldn't do it for another reason, which the message has.
	ReasonFileError = "FileError" //toolcall:runner FileFailed
)

// Reasons of a ToolCall that was denied.
const (
	// ReasonEmptyCommand says that the binary or the command line is empty.
	ReasonEmptyCommand = "EmptyCommand"
	// ReasonAgentNotAllowed says that the requester has no right to use the tool, or is not known.
	ReasonAgentNotAllowed = "AgentNotAllowed"
	// ReasonSessionNotAllowed says that the requester neither created the session nor has the verb "use" on it, or is not
	// known.
	ReasonSessionNotAllowed = "SessionNotAllowed"
	// ReasonBinaryPathTraversal says that the binary holds "..".
	ReasonBinaryPathTraversal = "BinaryPathTraversal"
	// ReasonBinaryNotBareName says that the binary holds "/": only names are looked up.
	ReasonBinaryNotBareName = "BinaryNotBareName"
	// ReasonBinaryNotAllowed says that binaries.allowed lacks the binary.
	ReasonBinaryNotAllowed = "BinaryNotAllowed"
	// ReasonArgumentNotAllowed says that an argument holds a shell metacharacter or "..", and arguments.metacharacters is Deny.
	ReasonArgumentNotAllowed = "ArgumentNotAllowed"
	// ReasonEnvNotAllowed says that the call's env sets a protected variable, or one that can't be set.
	ReasonEnvNotAllowed = "EnvNotAllowed"
	// ReasonShellDisabled says that shell.enabled is false.
	ReasonShellDisabled = "ShellDisabled"
	// ReasonShellCommandNotAllowed says that the script names a program that binaries.allowed lacks; under
	// binaries.enforcement Name also that a name isn't written out, or that the script sets a protected variable.
	ReasonShellCommandNotAllowed = "ShellCommandNotAllowed"
	// ReasonShellNotParseable says that the script could not be parsed, so that nobody can say what it runs.
	ReasonShellNotParseable = "ShellNotParseable"
	// ReasonCodeDisabled says that code.enabled is false.
	ReasonCodeDisabled = "CodeDisabled"
	// ReasonLanguageNotAllowed says that code.languages lacks the language.
	ReasonLanguageNotAllowed = "LanguageNotAllowed"
	// ReasonModuleNotAllowed says that the source uses a module of code.deniedModules.
	ReasonModuleNotAllowed = "ModuleNotAllowed"
	// ReasonNetworkNotAllowed says that the call asks for network access, or its source uses a network module, and the policy gives none; or network.hosts of the call names a host that the policy doesn't cover, or there is nothing to narrow.
	ReasonNetworkNotAllowed = "NetworkNotAllowed"
	// ReasonExecutionTimeTooLong says that the call asks for more time than code.maxExecutionMilliseconds.
	ReasonExecutionTimeTooLong = "ExecutionTimeTooLong"
	// ReasonSourceTooLarge says that the source is longer than code.maxScanBytes, and code.oversized is Deny.
	ReasonSourceTooLarge = "SourceTooLarge"
	// ReasonUnknownTool says that no action belongs to the name of the emitted tool call.
	ReasonUnknownTool = "UnknownTool"
	// ReasonInvalidArguments says that the arguments of the emitted tool call do not fit its tool, or the call's spec was
	// changed after its creation.
	ReasonInvalidArguments = "InvalidArguments"
	// ReasonApprovalDenied says that a person refused the call; the message has the note.
	ReasonApprovalDenied = "ApprovalDenied"
	// ReasonApprovalExpired says that too few people approved the call in time.
	ReasonApprovalExpired = "ApprovalExpired"
	// ReasonBudgetExceeded says that the requester keeps more pending than the operator's bounds allow, or that the call needs
	// more than a ToolBudget ever gives.
	ReasonBudgetExceeded = "BudgetExceeded"
	// ReasonDeniedByRule says that a rule of the policy denies the call; the message names the rule.
	ReasonDeniedByRule = "DeniedByRule"
	// ReasonGuardError says that a guard could not decide (an error or a panic), and that asking again for as long as
	// the call may wait for its start didn't help: the call fails closed.
	ReasonGuardError = "GuardError"
)
