package runner

import (
	"io"
	"os"
	"time"
)

// SourceArg is the argument that stands for the path of Command.Source.
const SourceArg = "@toolcall-source@"

// sourcePath is where the child finds the source: on its file descriptor 3.
const sourcePath = "/dev/fd/3"

// DefaultGrace is how long a process has to end after SIGTERM.
const DefaultGrace = 5 * time.Second

// Command is what to run.
type Command struct {
	// Argv is the program and its arguments. A program without a slash is looked up in the PATH of Env.
	Argv []string
	// Env is the whole environment of the process, as NAME=value.
	Env []string
	// Dir is the directory to start in. DirFD, when set, is that directory, already open and checked: the
	// process starts in it even if the path leads elsewhere by now. Run doesn't close it.
	Dir   string
	DirFD *os.File
	// Stdin is fed to the process, then its standard input is closed.
	Stdin []byte
	// Timeout of the process's wall-clock time; none when 0. Grace between SIGTERM and SIGKILL;
	// DefaultGrace when 0.
	Timeout, Grace time.Duration
	// MaxBytesPerStream is how much of each output stream is kept: half from its start, half from its end.
	MaxBytesPerStream int
	// Source, when not nil, is put into memory that can't be changed any more; arguments that are
	// SourceArg become a path to it.
	Source []byte
	// DenyNetwork makes every socket but a Unix one fail, for the process and all that it starts.
	DenyNetwork bool
	// Stdout and Stderr get the output as it is written; either may be nil. One that fails or hangs
	// doesn't disturb the process: output is then left out there, never in the outcome.
	Stdout, Stderr io.Writer
}

// Stop is a cause of a context's end that names the reason of the outcome.
type Stop struct {
	Reason, Message string
}

// Error makes Stop usable with context.WithCancelCause.
func (s Stop) Error() string { return s.Reason + ": " + s.Message }

// Option changes how Run works.
type Option func(*options)

type options struct {
	now      func() time.Time
	oomKills func() (count uint64, known bool)
	onStart  func(time.Time)
}

func newOptions(opts []Option) options {
	o := options{now: time.Now, oomKills: CgroupOOMKills, onStart: func(time.Time) {}}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithClock sets the clock that the outcome's times are taken from. Timeouts use the real one.
func WithClock(now func() time.Time) Option {
	return func(o *options) { o.now = now }
}

// WithOOMKills sets how the number of processes that the kernel killed for memory is read.
func WithOOMKills(count func() (uint64, bool)) Option {
	return func(o *options) { o.oomKills = count }
}

// WithOnStart sets a function that is called once, when the process has started. It must not block.
func WithOnStart(f func(at time.Time)) Option {
	return func(o *options) { o.onStart = f }
}
