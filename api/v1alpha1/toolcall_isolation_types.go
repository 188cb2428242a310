package v1alpha1

// ExecutedProgram is a program that was executed.
type ExecutedProgram struct {
	// path is the program's file without links, or a multi-call program's name in the directory of its file. A long one
	// lacks its beginning.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Path string `json:"path"`

	// count is how often it was executed.
	// +required
	Count int64 `json:"count"`
}

// RefusedProgram is a program that was refused.
type RefusedProgram struct {
	// path is the program's file without links. A long one lacks its beginning.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Path string `json:"path"`

	// count is how often it was tried.
	// +required
	Count int64 `json:"count"`

	// rule is why: NotListed (the policy doesn't list it), Interpreter (the first line of a script names a program that
	// isn't listed), Loader (a loader was started by hand, which would run any file), Name (a multi-call program under a
	// name that isn't listed), Unnamed (the file has no name: it is in memory, or was removed), Changed (another program
	// than the one looked at was about to run; its process was killed), Unreadable (the process can't be looked at),
	// UnreadableFile (the call's user may execute the program and not read it).
	// +kubebuilder:validation:MaxLength=64
	// +required
	Rule string `json:"rule"`
}

// Isolation is which walls the kernel held.
type Isolation struct {
	// landlockABI is the version of the kernel's Landlock.
	// +required
	LandlockABI int32 `json:"landlockABI"`

	// programs says that only listed programs could be executed.
	// +optional
	Programs bool `json:"programs,omitempty"`

	// reads says that files could be read below the policy's files.readPaths only.
	// +optional
	Reads bool `json:"reads,omitempty"`

	// writes says that files could be written below the policy's files.writePaths only.
	// +optional
	Writes bool `json:"writes,omitempty"`

	// signals says that processes outside the call couldn't be signalled, nor their abstract sockets reached: Linux 6.12
	// and later.
	// +optional
	Signals bool `json:"signals,omitempty"`

	// namesOnly are multi-call programs that are listed: the kernel holds their file, and their names are only looked at.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	NamesOnly []string `json:"namesOnly,omitempty"`

	// writable are listed programs and directories that the call could write to: what it put there could run
	// (binaries.allowWritable of the policy).
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	Writable []string `json:"writable,omitempty"`

	// notFound are entries of binaries.allowed that led to no program in the pod, outside what the call can write to.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	NotFound []string `json:"notFound,omitempty"`
}
