// Code generated from api/v1alpha1/conditions.go by hack/reasons. DO NOT EDIT.

package result

// Reasons that a runner reports, as in the API.
const (
	// Completed says that the process ended with exit code 0.
	Completed = "Completed"
	// NonZeroExit says that the process ended with another exit code than 0.
	NonZeroExit = "NonZeroExit"
	// TimedOut says that the process was stopped at its time limit.
	TimedOut = "TimedOut"
	// Signaled says that a signal ended the process; the status names it.
	Signaled = "Signaled"
	// OOMKilled says that the kernel killed the process because it needed too much memory.
	OOMKilled = "OOMKilled"
	// CommandNotFound says that the image lacks the program, shell or interpreter, or it can't be executed.
	CommandNotFound = "CommandNotFound"
	// WorkingDirNotFound says that the working directory does not exist in the pod.
	WorkingDirNotFound = "WorkingDirNotFound"
	// WorkingDirNotAllowed says that the working directory lies outside the environment's allowedPaths.
	WorkingDirNotAllowed = "WorkingDirNotAllowed"
	// InvalidEnvironment says that the environment cannot be used as written; the message names what is wrong.
	InvalidEnvironment = "InvalidEnvironment"
	// StartTimeout says that the process did not start within startTimeoutSeconds.
	StartTimeout = "StartTimeout"
	// PodLost says that the pod is gone and left no result. With retrySafe false the command may have run.
	PodLost = "PodLost"
	// SessionEnded says that the call's session ended before the call started.
	SessionEnded = "SessionEnded"
	// IsolationUnavailable says that the policy has the kernel hold what the call executes, reads or writes, and
	// that the node can't, or that the image has a listed program that runs others without executing them; the message
	// names what is missing, or the program. Nothing was started. On an environment's Ready it says that runners of the
	// environment were on such a node, or that calls met such a program.
	IsolationUnavailable = "IsolationUnavailable"
	// CancelRequested says that somebody set spec.cancel.
	CancelRequested = "CancelRequested"
	// FileNotFound says that there is no file or directory of that path.
	FileNotFound = "FileNotFound"
	// FileExists says that there is one already.
	FileExists = "FileExists"
	// IsDirectory says that the path is a directory's.
	IsDirectory = "IsDirectory"
	// NotDirectory says that the path, or a part of it, isn't a directory's.
	NotDirectory = "NotDirectory"
	// PathNotAllowed says that the path leads where the policy doesn't let the call read or write.
	PathNotAllowed = "PathNotAllowed"
	// PermissionDenied says that the pod's user may not do that.
	PermissionDenied = "PermissionDenied"
	// FileTooLarge says that the file is larger than files.maxReadBytes or files.maxWriteBytes of the policy.
	FileTooLarge = "FileTooLarge"
	// EditNotFound says that oldString isn't in the file.
	EditNotFound = "EditNotFound"
	// EditAmbiguous says that oldString is in the file more than once.
	EditAmbiguous = "EditAmbiguous"
	// FileChanged says that the file's content isn't the one of ifSHA256, or changed while it was edited.
	FileChanged = "FileChanged"
	// NoSpace says that the volume is full, or a quota is used up.
	NoSpace = "NoSpace"
	// InvalidPattern says that the pattern isn't a glob, or no RE2 expression.
	InvalidPattern = "InvalidPattern"
	// FileError says that the file system couldn't do it for another reason, which the message has.
	FileError = "FileError"
)
