package runner

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/programs"
)

// classify returns why the kernel didn't start the program.
func classify(err error, program string, dir *os.File) error {
	if _, isKnown := errors.AsType[*failure](err); isKnown {
		return err
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return err
	}
	name := quote(program)
	switch errno {
	case unix.ENOENT:
		return notFound(whatIsMissing(program, dir))
	case unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG:
		return notFound(name + " does not exist.")
	case unix.EACCES, unix.EPERM:
		return notFound(name + " may not be executed: permission denied.")
	case unix.ENOEXEC:
		return notFound(name + " is not a program that this machine can run: " +
			"it has no #! line, or was built for another kind of machine.")
	case unix.E2BIG:
		return failed(result.InvalidEnvironment,
			"The command's arguments and variables, or one of them, are larger than the kernel takes: pass large data by stdin.")
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		return failed(result.InvalidEnvironment,
			"The command could not be started within the limits of its environment: "+errno.Error()+".")
	case unix.EINVAL:
		return failed(result.InvalidEnvironment,
			"The command could not be started: an argument or a variable contains a NUL byte, or the program is malformed.")
	default:
		return notFound(name + " could not be started: " + errno.Error() + ".")
	}
}

func notFound(message string) *failure {
	return failed(result.CommandNotFound, message)
}

// whatIsMissing distinguishes a program that doesn't exist from one whose interpreter or loader doesn't.
func whatIsMissing(program string, dir *os.File) string {
	if unix.Faccessat(int(dir.Fd()), program, unix.F_OK, 0) != nil {
		return quote(program) + " does not exist." + wordsHint(program)
	}
	if interpreter := shebang(program, dir); interpreter != "" {
		return fmt.Sprintf("%s can't be run: its interpreter %s does not exist.", quote(program), quote(interpreter))
	}
	return quote(program) + " can't be run: the loader that it was built for does not exist."
}

// shebang returns the interpreter that a script names; it is empty for other files.
func shebang(program string, dir *os.File) string {
	fd, err := unix.Openat(int(dir.Fd()), program, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	f := os.NewFile(uintptr(fd), program)
	defer f.Close()
	head := make([]byte, programs.MaxScriptLine)
	n, _ := f.Read(head)
	return strings.ReplaceAll(programs.ScriptInterpreter(head[:n]), "\r", "\\r")
}

// quote quotes a name for a message, whole: the outcome is redacted before it is shortened.
func quote(name string) string { return fmt.Sprintf("%q", name) }
