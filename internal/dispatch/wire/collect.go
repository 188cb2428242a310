package wire

// Collect says which files to keep when the process has ended.
type Collect struct {
	// Globs are relative to the working directory, or absolute.
	Globs []string `json:"globs,omitempty"`
	// WritePaths are the directories whose files may be kept; nil for those of FileRules. DeniedPaths are globs of what may
	// not be.
	WritePaths  []string `json:"writePaths,omitzero"`
	DeniedPaths []string `json:"deniedPaths,omitempty"`
	// MaxCount bounds the files, MaxBytes the size of each, MaxTotalBytes that of all.
	MaxCount      int   `json:"maxCount"`
	MaxBytes      int64 `json:"maxBytes"`
	MaxTotalBytes int64 `json:"maxTotalBytes"`
}
