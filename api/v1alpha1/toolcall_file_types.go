package v1alpha1

// FileOperation is what is done with a file or directory.
// +kubebuilder:validation:Enum=Read;Write;Edit;List;Glob;Grep;Stat;Delete;MakeDirectory;Move
type FileOperation string

// Operations of a FileAction. Read, List, Glob, Grep and Stat count as the tool file.read, the others as file.write.
const (
	// FileRead reads a file, or a part of it.
	FileRead FileOperation = "Read"
	// FileWrite writes a file as a whole.
	FileWrite FileOperation = "Write"
	// FileEdit replaces a text in a file.
	FileEdit FileOperation = "Edit"
	// FileList lists a directory.
	FileList FileOperation = "List"
	// FileGlob finds files by their names.
	FileGlob FileOperation = "Glob"
	// FileGrep finds lines in files.
	FileGrep FileOperation = "Grep"
	// FileStat describes a file or directory.
	FileStat FileOperation = "Stat"
	// FileDelete deletes a file or directory.
	FileDelete FileOperation = "Delete"
	// FileMakeDirectory makes a directory and its parents.
	FileMakeDirectory FileOperation = "MakeDirectory"
	// FileMove gives a file or directory another path.
	FileMove FileOperation = "Move"
)

// FileUnit is what offset and limit of a Read count.
// +kubebuilder:validation:Enum=Lines;Bytes
type FileUnit string

// Units of a Read.
const (
	// UnitLines counts lines, the first of which is 1.
	UnitLines FileUnit = "Lines"
	// UnitBytes counts bytes, the first of which is 0.
	UnitBytes FileUnit = "Bytes"
)

// FileAction reads, writes or searches files. The runner does it itself: the image needs no program for it, and no process is
// started.
type FileAction struct {
	// operation is what to do.
	// +required
	Operation FileOperation `json:"operation"`

	// path of the file or directory: absolute, below the home directory with "~/", or relative to the call's working directory. Symbolic links are followed as
	// far as they stay where the policy lets the call read or write; Stat, Delete and Move don't follow the last one.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +required
	Path string `json:"path"`

	// offset is where a Read begins: the number of a line, counted from 1, or of a byte, counted from 0. The start when
	// unset.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Offset *int64 `json:"offset,omitempty"`

	// limit is how many lines or bytes a Read returns at most. 2000 lines, or what the policy's files.maxReadBytes allows,
	// when unset.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Limit *int64 `json:"limit,omitempty"`

	// unit is what offset and limit count, Lines (the default) or Bytes.
	// +optional
	Unit FileUnit `json:"unit,omitempty"`

	// content is the text that a Write writes, at most 524288 bytes of UTF-8.
	// +kubebuilder:validation:MaxLength=524288
	// +optional
	Content *string `json:"content,omitempty"`

	// contentBase64 is, in place of content, the bytes that a Write writes, in base64: at most 512 KiB of them.
	// +kubebuilder:validation:MaxLength=699052
	// +kubebuilder:validation:Format=byte
	// +optional
	ContentBase64 *string `json:"contentBase64,omitempty"`

	// mode are the permissions of what a Write or a MakeDirectory makes, in octal digits, e.g. "0644". Unset: those of the
	// file that is replaced, else 0644, and 0755 for a directory.
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^0?[0-7]{3}$`
	// +optional
	Mode string `json:"mode,omitempty"`

	// ifSHA256 makes a Write or an Edit conditional: it fails (FileChanged) unless the file's content has this SHA-256, in
	// hexadecimal digits. Empty: a Write only creates the file, and fails (FileExists) if it is there.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{64})?$`
	// +optional
	IfSHA256 *string `json:"ifSHA256,omitempty"`

	// oldString is the text that an Edit replaces. It must be in the file exactly once, unless replaceAll is true. Where all lines
	// of the file end with "\r\n", a line end "\n" in it stands for that, in newString too. A byte-order mark at the file's start isn't
	// part of its first line.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	OldString string `json:"oldString,omitempty"`

	// newString is the text that an Edit puts in its place; empty removes it.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	NewString string `json:"newString,omitempty"`

	// replaceAll has an Edit replace oldString wherever it is.
	// +optional
	ReplaceAll bool `json:"replaceAll,omitempty"`

	// edits are, in place of oldString, newString and replaceAll, the changes of an Edit, one after the other. Each finds what
	// the ones before it have made. Either all of them are made, or none.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Edits []TextReplacement `json:"edits,omitempty"`

	// pattern is a glob for a Glob, such as "**/*.go", relative to path, or to the home directory with "~/"; for a Grep an RE2 expression, or a text if literal
	// is true.
	// +kubebuilder:validation:MaxLength=8192
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +optional
	Pattern string `json:"pattern,omitempty"`

	// literal says that a Grep's pattern is a text.
	// +optional
	Literal bool `json:"literal,omitempty"`

	// glob narrows a Grep to files whose path below path matches; one without a slash is compared with the file's name.
	// +kubebuilder:validation:MaxLength=8192
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +optional
	Glob string `json:"glob,omitempty"`

	// contextLines is how many lines before and after each match a Grep returns with it. 0 when unset.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	// +optional
	ContextLines *int32 `json:"contextLines,omitempty"`

	// respectGitIgnore has a List, Glob or Grep leave out what .gitignore files name: those below path, and those above it up to
	// the top of its repository.
	// +optional
	RespectGitIgnore bool `json:"respectGitIgnore,omitempty"`

	// recursive has a List descend into directories, as a Glob and a Grep do anyway, and lets a Delete delete a directory with all
	// that is in it.
	// +optional
	Recursive bool `json:"recursive,omitempty"`

	// maxResults bounds the results of a List, Glob or Grep. 1000 when unset, which is the most.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxResults *int32 `json:"maxResults,omitempty"`

	// destination is the new path of a Move, as path is.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +optional
	Destination string `json:"destination,omitempty"`

	// overwrite lets a Move replace a file at its destination. A directory is never replaced.
	// +optional
	Overwrite bool `json:"overwrite,omitempty"`
}

// TextReplacement is one change of an Edit.
type TextReplacement struct {
	// oldString is the text that is replaced. It must be there exactly once, unless replaceAll is true.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	// +required
	OldString string `json:"oldString"`

	// newString is the text that is put in its place; empty removes it.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	NewString string `json:"newString,omitempty"`

	// replaceAll replaces oldString wherever it is.
	// +optional
	ReplaceAll bool `json:"replaceAll,omitempty"`
}

// Writes says whether the operation changes files.
func (o FileOperation) Writes() bool {
	switch o {
	case FileRead, FileList, FileGlob, FileGrep, FileStat:
		return false
	default:
		return true
	}
}

// FileStatus is what a FileAction did. Fields that don't apply to its operation are absent.
type FileStatus struct {
	// path that was reached: absolute, with symbolic links resolved. Bytes that aren't UTF-8 are U+FFFD.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Path string `json:"path,omitempty"`

	// bytes is how much a Read returned, the size of a file that was written, or that a Stat found.
	// +optional
	Bytes *int64 `json:"bytes,omitempty"`

	// sha256 is that of the whole file's content, in hexadecimal digits, as ifSHA256 takes it. A Read has it only if it
	// returned all of the file, and nobody wrote to it meanwhile; a Stat if the file is no larger than the policy's
	// files.maxReadBytes and can be read. Absent where the content has a value that redaction replaces.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SHA256 string `json:"sha256,omitempty"`

	// lines is how many lines a Read of lines returned.
	// +optional
	Lines *int64 `json:"lines,omitempty"`

	// matches is how many results a List, Glob or Grep has, or how many files and directories a Delete deleted.
	// +optional
	Matches *int64 `json:"matches,omitempty"`

	// truncated says that there is more of the file, or that there are more results.
	// +optional
	Truncated bool `json:"truncated,omitempty"`

	// nextOffset is the offset with which the next Read goes on, in the same unit.
	// +optional
	NextOffset *int64 `json:"nextOffset,omitempty"`

	// changed says that somebody wrote to the file while it was read: what was returned may never have been its content.
	// +optional
	Changed bool `json:"changed,omitempty"`

	// created says that the file or directory wasn't there before.
	// +optional
	Created bool `json:"created,omitempty"`

	// replaced is how often an Edit replaced oldString.
	// +optional
	Replaced *int64 `json:"replaced,omitempty"`

	// binary says that what a Read returned isn't text. The call's output describes the file then, in place of its content.
	// +optional
	Binary bool `json:"binary,omitempty"`

	// skipped counts what a List, Glob or Grep left out; absent when it left nothing out.
	// +optional
	Skipped *SkippedFiles `json:"skipped,omitempty"`
}

// SkippedFiles counts the files and directories that weren't looked at.
type SkippedFiles struct {
	// binary files hold a NUL byte: a Grep doesn't search them.
	// +optional
	Binary int64 `json:"binary,omitempty"`

	// denied files and directories match files.deniedPaths of the policy, or are the kernel's.
	// +optional
	Denied int64 `json:"denied,omitempty"`

	// unreadable files and directories can't be opened, or vanished.
	// +optional
	Unreadable int64 `json:"unreadable,omitempty"`

	// deep directories are too many levels below path.
	// +optional
	Deep int64 `json:"deep,omitempty"`

	// longLines were searched in their first part only.
	// +optional
	LongLines int64 `json:"longLines,omitempty"`
}
