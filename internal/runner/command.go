package runner

import (
	"io"
	"os"
	"time"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/spec"
)

// DefaultGrace is how long a process has to end after SIGTERM.
const DefaultGrace = 5 * time.Second

// Command is what to run. Its JSON leaves out the texts, which may not be UTF-8, and what belongs to this process: files and writers.
type Command struct {
	// Argv is the program and its arguments. A program without a slash is looked up in the PATH of Env.
	Argv []string `json:"-"`
	// Env is the whole environment of the process, as NAME=value.
	Env []string `json:"-"`
	// Dir is the directory to start in. If DirFD is set, it is that directory, open and checked: the process starts in it
	// even if the path leads elsewhere by now. Run doesn't close it.
	Dir   string   `json:"-"`
	DirFD *os.File `json:"-"`
	// Stdin is fed to the process, then its standard input is closed.
	Stdin []byte `json:"-"`
	// Input is the standard input of the process in place of Stdin; nil for none. Run closes it.
	Input *os.File `json:"-"`
	// Bounds hold for the process. It has half of MaxBytesPerStream from the start of each output stream, half from its end.
	spec.Bounds
	// Grace is the time between SIGTERM and SIGKILL; 0 is DefaultGrace.
	Grace time.Duration
	// OnStreams gets what is kept of the output as soon as the process runs, to be read then and later, and to be dropped by
	// the one who gets it. It must not block. When it is nil, Run drops the files.
	OnStreams func(stdout, stderr kept.Output) `json:"-"`
	// Redact finds the values that are replaced in the output before anything keeps or shows it; nil for none.
	Redact *redact.Matcher `json:"-"`
	// Network restricts what the process and all that it starts connect to and look up; nil restricts nothing. With
	// DenyNetwork it has no meaning.
	Network *Network
	// Stdout and Stderr get the output as it is written. Either may be nil. A writer that fails or hangs doesn't disturb
	// the process: it misses output, the outcome doesn't.
	Stdout, Stderr io.Writer `json:"-"`
	// Beside says that other commands run in the container at the same time: the kernel counts the processes that it kills for
	// memory of all of them together.
	Beside bool `json:"-"`

	// now and oomKills are the clock of the outcome's times, and CgroupOOMKills. Tests have others.
	now      func() time.Time
	oomKills func() (count uint64, known bool)
}

// Stop is a cause for ending the context. It sets the reason of the outcome.
type Stop struct {
	Reason, Message string
	// Kill ends the command with SIGKILL at once.
	Kill bool
}

// Error makes Stop usable with context.WithCancelCause.
func (s Stop) Error() string { return s.Reason + ": " + s.Message }
