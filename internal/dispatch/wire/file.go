package wire

// File is an operation on files that the runner does itself. Its fields are those of the API's file action.
type File struct {
	Operation  string  `json:"operation"`
	Path       string  `json:"path"`
	Offset     int64   `json:"offset,omitempty"`
	Limit      int64   `json:"limit,omitempty"`
	Unit       string  `json:"unit,omitempty"`
	Content    []byte  `json:"content,omitempty"`
	Mode       *uint32 `json:"mode,omitempty"`
	IfSHA256   *string `json:"ifSHA256,omitempty"`
	OldString  string  `json:"oldString,omitempty"`
	NewString  string  `json:"newString,omitempty"`
	ReplaceAll bool    `json:"replaceAll,omitempty"`
	// Edits are several changes, in place of OldString, NewString and ReplaceAll.
	Edits            []FileEdit `json:"edits,omitempty"`
	Pattern          string     `json:"pattern,omitempty"`
	Literal          bool       `json:"literal,omitempty"`
	Glob             string     `json:"glob,omitempty"`
	ContextLines     int        `json:"contextLines,omitempty"`
	RespectGitIgnore bool       `json:"respectGitIgnore,omitempty"`
	Recursive        bool       `json:"recursive,omitempty"`
	MaxResults       int        `json:"maxResults,omitempty"`
	Destination      string     `json:"destination,omitempty"`
	Overwrite        bool       `json:"overwrite,omitempty"`
	// Rules are what the policy says about files.
	Rules FileRules `json:"rules"`
}

// FileEdit is one change of several.
type FileEdit struct {
	OldString  string `json:"oldString"`
	NewString  string `json:"newString,omitempty"`
	ReplaceAll bool   `json:"replaceAll,omitempty"`
}

// FileRules bound what a file action reaches. ReadPaths and WritePaths are nil where the policy sets none: then the call reads
// below the directories that the environment allows, and below those that it may write to, and writes below the workspace,
// /tmp and the home directory.
type FileRules struct {
	ReadPaths     []string `json:"readPaths,omitzero"`
	WritePaths    []string `json:"writePaths,omitzero"`
	DeniedPaths   []string `json:"deniedPaths,omitempty"`
	MaxReadBytes  int64    `json:"maxReadBytes,omitempty"`
	MaxWriteBytes int64    `json:"maxWriteBytes,omitempty"`
}
