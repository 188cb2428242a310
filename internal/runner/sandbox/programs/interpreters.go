package programs

import (
	"debug/elf"
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

const (
	maxSegments    = 64
	maxDynamicSize = 16 << 10
)

// readELF looks at a 64-bit little-endian file, by its segments, as the kernel does: its sections can say anything. Others don't run under
// the filter. A loader, like any shared library, can be anywhere in memory, names no loader, and doesn't say that it is a program.
func readELF(head []byte, read func(b []byte, at int64) bool) interpreters {
	var header elf.Header64
	if !strings.HasPrefix(string(head), elf.ELFMAG+"\x02\x01") || !decoded(head, &header) {
		return interpreters{}
	}
	isLoader := elf.Type(header.Type) == elf.ET_DYN
	var segment elf.Prog64
	raw := make([]byte, binary.Size(segment))
	for i := range min(int64(header.Phnum), maxSegments) {
		if !read(raw, int64(header.Phoff)+i*int64(header.Phentsize)) || !decoded(raw, &segment) {
			break
		}
		switch segment.Type {
		case uint32(elf.PT_INTERP):
			name := make([]byte, min(segment.Filesz, unix.PathMax))
			if !read(name, int64(segment.Off)) {
				return interpreters{}
			}
			return interpreters{loader: strings.TrimRight(string(name), "\x00")}
		case uint32(elf.PT_DYNAMIC):
			dynamic := make([]byte, min(segment.Filesz, maxDynamicSize))
			isLoader = isLoader && (!read(dynamic, int64(segment.Off)) || !saysProgram(dynamic))
		}
	}
	return interpreters{isLoader: isLoader}
}

// decoded reads a structure, and reports whether it is there whole.
func decoded(raw []byte, into any) bool {
	_, err := binary.Decode(raw, binary.LittleEndian, into)
	return err == nil
}

// saysProgram reports whether a dynamic section is a program's: one that can be anywhere in memory says so.
func saysProgram(dynamic []byte) bool {
	var entry elf.Dyn64
	for size := binary.Size(entry); decoded(dynamic, &entry); dynamic = dynamic[size:] {
		switch entry.Tag {
		case int64(elf.DT_NULL):
			return false
		case int64(elf.DT_FLAGS_1):
			return elf.DynFlag1(entry.Val)&elf.DF_1_PIE != 0
		}
	}
	return false
}
