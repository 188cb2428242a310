package tools

// maxWait is how many seconds a tool waits at most.
const maxWait = 600

// The largest numbers of environment variables, of characters in the name of one, and of arguments of a program that the API allows.
const (
	maxVariables    = 256
	maxVariableName = 256
	maxWords        = 1024
)

// maxKernelBytes is how many bytes the kernel takes in one argument of a process.
const maxKernelBytes = 128<<10 - 1

// longest says how many characters the API allows in texts, in each element of lists, and in the values of variables; of what becomes one
// argument of a process, how many bytes.
var longest = map[string]int{
	"command": maxKernelBytes, "program": 256, "args": maxKernelBytes, "language": 64, "code": 512 << 10, "stdin": 512 << 10, "env": 128 << 10,
	"collect": 256, "working_dir": 4096, "path": 4096, "old_string": 256 << 10, "new_string": 256 << 10, "pattern": 8192, "glob": 8192,
}
