package programs

import (
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// headSize is how much of a file the kernel looks at to tell what it is, and enough for a loader's name.
const headSize = 4096

// interpreters are what the kernel starts to run a file.
type interpreters struct {
	// script is what the first line of a script names.
	script string
	// loader is what a dynamically linked program names.
	loader string
	// isLoader says that the file is a loader itself: it runs any file, or any that it can read.
	isLoader bool
	// unreadable says that nobody knows.
	unreadable bool
}

// readInterpreters reads a file's first bytes.
func readInterpreters(f *openFile) interpreters {
	fd, err := unix.Open(kernel.FDPath(f.fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return interpreters{unreadable: true}
	}
	defer unix.Close(fd)
	head := make([]byte, headSize)
	n, err := unix.Pread(fd, head, 0)
	if err != nil {
		return interpreters{unreadable: true}
	}
	head = head[:n]
	if script := ScriptInterpreter(head); script != "" {
		return interpreters{script: script}
	}
	return readELF(head, func(b []byte, at int64) bool {
		if at >= 0 && at <= int64(len(head)-len(b)) {
			copy(b, head[at:])
			return true
		}
		n, err := unix.Pread(fd, b, at)
		return err == nil && n == len(b)
	})
}

// MaxScriptLine is how much of a file the kernel looks at for the line of a script.
const MaxScriptLine = 256

// ScriptInterpreter is the path in the #! line with which a file begins, as the kernel reads it, ended by white space. It is empty for
// other files.
func ScriptInterpreter(head []byte) string {
	line, isScript := strings.CutPrefix(string(head[:min(len(head), MaxScriptLine)]), "#!")
	if !isScript {
		return ""
	}
	line, _, _ = strings.Cut(line, "\n")
	line = strings.TrimLeft(line, " \t")
	if end := strings.IndexAny(line, " \t\x00"); end >= 0 {
		line = line[:end]
	}
	return line
}

// Positions in the header of a 64-bit ELF file and in its table of segments, and numbers that are there.
const (
	elfHeader       = 64
	elfType         = 16
	elfSegments     = 32
	elfSegmentSize  = 54
	elfSegmentCount = 56
	elfDynamic      = 2
	elfInterp       = 3
	elfMovable      = 3
	maxSegments     = 64
)

// Numbers of the dynamic section of an ELF file. A program that can be anywhere in memory says that it is a program.
const (
	elfFlags       = 0x6ffffffb
	elfIsProgram   = 0x08000000
	maxDynamicSize = 16 << 10
)

// readELF looks at a 64-bit little-endian file. Others don't run under the filter. A loader, like any shared library,
// can be anywhere in memory, names no loader, and doesn't say that it is a program.
func readELF(head []byte, read func(b []byte, at int64) bool) interpreters {
	if len(head) < elfHeader || string(head[:6]) != "\x7fELF\x02\x01" {
		return interpreters{}
	}
	at := int64(binary.LittleEndian.Uint64(head[elfSegments:]))
	size := int64(binary.LittleEndian.Uint16(head[elfSegmentSize:]))
	count := int64(binary.LittleEndian.Uint16(head[elfSegmentCount:]))
	isLoader := binary.LittleEndian.Uint16(head[elfType:]) == elfMovable
	segment := make([]byte, 56)
	for i := range min(count, maxSegments) {
		if !read(segment, at+i*size) {
			break
		}
		start, length := int64(binary.LittleEndian.Uint64(segment[8:])), binary.LittleEndian.Uint64(segment[32:])
		switch binary.LittleEndian.Uint32(segment) {
		case elfInterp:
			name := make([]byte, min(length, unix.PathMax))
			if !read(name, start) {
				return interpreters{}
			}
			return interpreters{loader: strings.TrimRight(string(name), "\x00")}
		case elfDynamic:
			dynamic := make([]byte, min(length, maxDynamicSize))
			isLoader = isLoader && (!read(dynamic, start) || !saysProgram(dynamic))
		}
	}
	return interpreters{isLoader: isLoader}
}

// saysProgram reports whether a dynamic section is a program's.
func saysProgram(dynamic []byte) bool {
	for ; len(dynamic) >= 16; dynamic = dynamic[16:] {
		switch binary.LittleEndian.Uint64(dynamic) {
		case 0:
			return false
		case elfFlags:
			return binary.LittleEndian.Uint64(dynamic[8:])&elfIsProgram != 0
		}
	}
	return false
}
