package spec

// Operation is what a file action asks for.
type Operation string

// Operations. Read, List, Glob, Grep and Stat are held to FileRules.ReadPaths, the others to FileRules.WritePaths.
const (
	OperationRead          Operation = "Read"
	OperationWrite         Operation = "Write"
	OperationEdit          Operation = "Edit"
	OperationList          Operation = "List"
	OperationGlob          Operation = "Glob"
	OperationGrep          Operation = "Grep"
	OperationStat          Operation = "Stat"
	OperationDelete        Operation = "Delete"
	OperationMakeDirectory Operation = "MakeDirectory"
	OperationMove          Operation = "Move"
)

// Unit is what the Offset and the Limit of a Read count.
type Unit string

// Units.
const (
	UnitLines Unit = "Lines"
	UnitBytes Unit = "Bytes"
)

// AnySHA256 is an IfSHA256 that every content meets.
const AnySHA256 = "*"

// File is an operation on files that the runner does itself. Fields that the operation doesn't know are ignored.
type File struct {
	Operation Operation `json:"operation"`
	// Path is absolute or relative to WorkingDir. Links in it are followed; Stat, Delete and Move don't follow the last. Where
	// a slash follows the last, Stat follows it, and Delete and Move refuse it.
	// Each directory on the way has to be one that the rules allow, or one above it.
	Path string `json:"path"`
	// WorkingDir is absolute. It isn't needed for absolute paths. Home is what "~" stands for at the start of a path, alone or before a
	// slash: absolute, or there is none. Both are known in the pod.
	WorkingDir string `json:"-"`
	Home       string `json:"-"`

	// Offset and Limit say what to Read. The first line is 1, the first byte 0. An Offset of 0 is the start, a Limit of 0
	// stands for as many lines or bytes as one Read returns.
	Offset int64 `json:"offset,omitempty"`
	Limit  int64 `json:"limit,omitempty"`
	// Unit is UnitLines if empty.
	Unit Unit `json:"unit,omitempty"`

	// Content is what to Write.
	Content []byte `json:"content,omitempty"`
	// Mode are the permissions of what Write or MakeDirectory makes, at most 0777. Nil keeps those of a file that is
	// replaced, and stands for 0644 and 0755 otherwise.
	Mode *uint32 `json:"mode,omitempty"`
	// IfSHA256 makes a Write, an Edit, or a Delete of a file conditional on the file's content, in hexadecimal digits. An empty
	// string lets a Write create the file only, AnySHA256 replace it only.
	IfSHA256 *string `json:"ifSHA256,omitempty"`

	// OldString is replaced by NewString in an Edit. It must be there exactly once, unless ReplaceAll is set. Where all lines of the
	// file end with "\r\n", a line end "\n" in it stands for that, in NewString too. A byte-order mark isn't part of the first line.
	OldString  string `json:"oldString,omitempty"`
	NewString  string `json:"newString,omitempty"`
	ReplaceAll bool   `json:"replaceAll,omitempty"`
	// Edits are, in place of these three, several changes, one after the other: all of them are made, or none.
	Edits []Replacement `json:"edits,omitempty"`

	// Pattern is a glob for Glob; for Grep an RE2 expression, or text if Literal is set.
	Pattern string `json:"pattern,omitempty"`
	Literal bool   `json:"literal,omitempty"`
	// Glob narrows a Grep to files whose path below Path matches. A glob without a slash is compared with the last name.
	Glob string `json:"glob,omitempty"`
	// ContextLines is how many lines before and after a match Grep returns with it.
	ContextLines int `json:"contextLines,omitempty"`
	// RespectGitIgnore has List, Glob and Grep leave out what the .gitignore files name that are in the tree, and those above it up
	// to the repository's.
	RespectGitIgnore bool `json:"respectGitIgnore,omitempty"`
	// Recursive lets List descend, and Delete delete directories. Glob and Grep always descend.
	Recursive bool `json:"recursive,omitempty"`
	// MaxResults bounds the results of List, Glob and Grep; 0 stands for as many as there may be.
	MaxResults int `json:"maxResults,omitempty"`

	// Destination is the new path of a Move. A file there is replaced only if Overwrite is set, a directory never.
	Destination string `json:"destination,omitempty"`
	Overwrite   bool   `json:"overwrite,omitempty"`

	// Rules are what the policy says about files.
	Rules FileRules `json:"rules"`
}

// Replacement is one change of an Edit, as OldString, NewString and ReplaceAll of a File are.
type Replacement struct {
	OldString  string `json:"oldString"`
	NewString  string `json:"newString,omitempty"`
	ReplaceAll bool   `json:"replaceAll,omitempty"`
}

// FileRules bound what a file action reaches.
type FileRules struct {
	// ReadPaths and WritePaths are absolute paths of directories. A file action may reach what is below one of them; Delete and
	// Move don't touch the directory itself. Their paths must not contain symbolic links: a call could make one. An empty list allows
	// nothing; nil says that the policy sets none: then the call reads below the directories that the environment allows, and below
	// those that it may write to, and writes below the workspace, /tmp and the home directory.
	ReadPaths  []string `json:"readPaths,omitzero"`
	WritePaths []string `json:"writePaths,omitzero"`
	// DeniedPaths are globs of what no file action may reach, with everything below. One without a leading slash counts in
	// every directory. Upper and lower case don't differ, as in some file systems they don't.
	DeniedPaths []string `json:"deniedPaths,omitempty"`
	// MaxReadBytes bounds what one Read returns, and the files that can be edited or compared. MaxWriteBytes bounds the files that
	// Write and Edit make, and those that Move copies to another file system. Zero stands for the runner's default in both.
	MaxReadBytes  int64 `json:"maxReadBytes,omitempty"`
	MaxWriteBytes int64 `json:"maxWriteBytes,omitempty"`
}
