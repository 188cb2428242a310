package v1alpha1

// FilesPolicy says which files a call may read and write.
type FilesPolicy struct {
	// readPaths are directories, absolute: a call's commands read files below them, below writePaths, and in the
	// directories of the system, which programs need (/usr, /etc, /lib, /opt, /dev, /proc, /sys). Unset: any file that the
	// pod's user may read. An empty list leaves writePaths and the directories of the system. Where the kernel holds a list
	// of programs, only the listed ones of a directory of programs, such as /usr/bin, can be read either way. File actions
	// read below them and below writePaths, and nowhere else. Unset: below the environment's allowedPaths and writePaths.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^/`
	// +listType=atomic
	// +optional
	ReadPaths []string `json:"readPaths,omitzero"`

	// writePaths are directories, absolute: a call's commands create, change and remove files only below them. Unset:
	// wherever the pod's user may write, also where the kernel holds a list of programs, but not below /proc then. An empty
	// list allows no writing. Devices such as /dev/null, and /dev/shm, can always be written. File actions write below them
	// and nowhere else. Unset: below /workspace, /tmp, the home directory, and the call's directory if allowedPaths has it.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^/`
	// +listType=atomic
	// +optional
	WritePaths []string `json:"writePaths,omitzero"`

	// deniedPaths are globs of files and directories that file actions reach nowhere, with everything below, such as ".git"
	// or "/workspace/secrets". One without a leading slash counts in every directory. Upper and lower case don't differ.
	// The kernel doesn't hold commands to them.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	// +optional
	DeniedPaths []string `json:"deniedPaths,omitempty"`

	// maxReadBytes is how much of a file one Read returns, and how large a file may be that an Edit changes. Default
	// 4194304.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=67108864
	// +optional
	MaxReadBytes *int64 `json:"maxReadBytes,omitempty"`

	// maxWriteBytes is how large a file may be that a Write or an Edit makes, or that a Move copies to another file system.
	// Default 4194304.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=67108864
	// +optional
	MaxWriteBytes *int64 `json:"maxWriteBytes,omitempty"`
}
