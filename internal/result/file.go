package result

import "unicode/utf8"

// Reasons of a request for a file that no call ends with.
const (
	// InvalidRequest is for values that no file system could make right.
	InvalidRequest = "InvalidRequest"
	// NotSupported is for what the kernel or the file system can't do.
	NotSupported = "NotSupported"
)

// fileReasons are how a file action ends that was begun. It has no exit code.
var fileReasons = map[string]bool{
	Completed: true, TimedOut: true, CancelRequested: true, PodLost: true, SessionEnded: true,
	FileNotFound: true, FileExists: true, IsDirectory: true, NotDirectory: true, PathNotAllowed: true, PermissionDenied: true,
	FileTooLarge: true, EditNotFound: true, EditAmbiguous: true, FileChanged: true, NoSpace: true, InvalidPattern: true,
	FileError: true,
}

// MaxFilePath bounds the path of a File, in characters: a path has at most 4096 bytes, and one that isn't UTF-8 becomes one
// character of three.
const (
	MaxFilePath      = 4096
	maxFilePathBytes = 3 * MaxFilePath
)

// File is what a file action did. Fields that don't apply to its operation are absent.
type File struct {
	// Path is what was reached, bytes that aren't UTF-8 as U+FFFD.
	Path       string       `json:"path,omitempty"`
	Bytes      *int64       `json:"bytes,omitempty"`
	SHA256     string       `json:"sha256,omitempty"`
	Lines      *int64       `json:"lines,omitempty"`
	Matches    *int64       `json:"matches,omitempty"`
	Truncated  bool         `json:"truncated,omitempty"`
	NextOffset *int64       `json:"nextOffset,omitempty"`
	Changed    bool         `json:"changed,omitempty"`
	Created    bool         `json:"created,omitempty"`
	Replaced   *int64       `json:"replaced,omitempty"`
	Binary     bool         `json:"binary,omitempty"`
	Skipped    SkippedFiles `json:"skipped,omitzero"`
}

// SkippedFiles counts what wasn't looked at.
type SkippedFiles struct {
	// Binary files contain a NUL byte.
	Binary int64 `json:"binary,omitempty"`
	// Denied files and directories are denied by the rules, or are the kernel's own.
	Denied int64 `json:"denied,omitempty"`
	// Unreadable files and directories can't be opened, or vanished.
	Unreadable int64 `json:"unreadable,omitempty"`
	// Deep directories are too far below the path, or their paths are too long.
	Deep int64 `json:"deep,omitempty"`
	// LongLines were searched at their start only.
	LongLines int64 `json:"longLines,omitempty"`
}

func fitsPath(path string) bool {
	return len(path) <= maxFilePathBytes && utf8.ValidString(path) && utf8.RuneCountInString(path) <= MaxFilePath
}
