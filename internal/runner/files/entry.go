package files

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/files/sys"
)

// Type is what a path names.
type Type string

// Types.
const (
	TypeFile      Type = "File"
	TypeDirectory Type = "Directory"
	TypeLink      Type = "Link"
	TypePipe      Type = "Pipe"
	TypeSocket    Type = "Socket"
	TypeDevice    Type = "Device"
)

// Entry is what List writes for each entry, and Stat for its path. It describes a symbolic link itself, not what the link
// leads to.
type Entry struct {
	// Path is relative to the directory for List, and absolute with links resolved for Stat. Bytes that aren't UTF-8 are
	// shown as U+FFFD.
	Path string `json:"path"`
	// PathBase64 is the exact path, if it isn't UTF-8.
	PathBase64 string `json:"pathBase64,omitempty"`
	Type       Type   `json:"type"`
	// Size is the number of bytes of a file.
	Size int64 `json:"size"`
	// Mode are the permissions as four octal digits.
	Mode string `json:"mode"`
	// UID and GID are the numbers of the owner and of its group.
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	// ModTime is the time of the last change of the content. A file can have one that JSON can't: then it is the nearest that
	// JSON can.
	ModTime time.Time `json:"modTime"`
	// Target is where a symbolic link leads, as written in it.
	Target string `json:"target,omitempty"`
	// TargetBase64 is the exact target, if it isn't UTF-8.
	TargetBase64 string `json:"targetBase64,omitempty"`
}

// Found is what Glob writes for each path.
type Found struct {
	// Path is relative to the directory. Bytes that aren't UTF-8 are shown as U+FFFD.
	Path string `json:"path"`
	// PathBase64 is the exact path, if it isn't UTF-8.
	PathBase64 string `json:"pathBase64,omitempty"`
	Type       Type   `json:"type"`
}

// Match is what Grep writes for each line that matches.
type Match struct {
	// Path is relative to the directory, and the name of the file where Path of the request is a file. Bytes that aren't
	// UTF-8 are shown as U+FFFD.
	Path string `json:"path"`
	// PathBase64 is the exact path, if it isn't UTF-8.
	PathBase64 string `json:"pathBase64,omitempty"`
	// LineNumber counts from 1.
	LineNumber int64 `json:"lineNumber"`
	// Column is the byte of the line at which the match starts, counted from 1.
	Column int64 `json:"column"`
	// Line is the line without its end. Bytes that aren't UTF-8 are shown as U+FFFD.
	Line string `json:"line"`
	// LineBase64 is the exact line, if it isn't UTF-8.
	LineBase64 string `json:"lineBase64,omitempty"`
	// Cut says that the line is longer, and that Line has the part of it around the match.
	Cut bool `json:"cut,omitempty"`
	// Before and After are the lines around it, in their order, if they were asked for. Of a longer one, the first MaxLineBytes are
	// there; bytes that aren't UTF-8 are shown as U+FFFD.
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// exact returns a text for JSON, and the exact bytes where the text isn't the same.
func exact(s string) (text, encoded string) {
	if utf8.ValidString(s) {
		return s, ""
	}
	return string([]rune(s)), base64.StdEncoding.EncodeToString([]byte(s))
}

// newEntry describes what has a name in an open directory, or without a name what a descriptor refers to.
func newEntry(path string, st *unix.Stat_t, fd int, name string) Entry {
	e := Entry{
		Type: typeOf(st.Mode), Mode: fmt.Sprintf("%04o", st.Mode&0o7777), UID: st.Uid, GID: st.Gid,
		ModTime: jsonTime(st.Mtim.Unix()),
	}
	e.Path, e.PathBase64 = exact(path)
	if e.Type == TypeFile {
		e.Size = st.Size
	}
	if e.Type == TypeLink {
		// It may be something else by now: then it has no target.
		if target, err := sys.ReadLink(fd, name); err == nil {
			e.Target, e.TargetBase64 = exact(target)
		}
	}
	return e
}

// The first and the last second of the years that a time in JSON can have.
var (
	firstSecond = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	lastSecond  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
)

func jsonTime(sec, nsec int64) time.Time {
	return time.Unix(min(max(sec, firstSecond), lastSecond), nsec).UTC()
}

// kinds are the types of what the kernel lists.
var kinds = map[byte]Type{
	unix.DT_REG: TypeFile, unix.DT_DIR: TypeDirectory, unix.DT_LNK: TypeLink, unix.DT_FIFO: TypePipe, unix.DT_SOCK: TypeSocket,
	unix.DT_CHR: TypeDevice, unix.DT_BLK: TypeDevice,
}

// typeOf returns the type in a mode of stat.
func typeOf(mode uint32) Type { return cmp.Or(kinds[kindOf(mode)], TypeDevice) }

// kindOf returns one of unix.DT_*.
func kindOf(mode uint32) byte { return byte(mode & unix.S_IFMT >> 12) }
