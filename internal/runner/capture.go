package runner

import (
	"bytes"
	"time"
	"unicode/utf8"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
)

// Capture gives a command's process its input, and keeps, redacts and shows its output. execute has the process started, and
// returns when everything that the command started has ended, with an outcome that lacks the output.
func Capture(cmd *Command, execute func(*Pipes) result.Outcome) result.Outcome {
	files, err := newFiles(cmd)
	if err != nil {
		return startFailure(err)
	}
	limits := kept.Limits{Memory: cmd.MaxBytesPerStream, Disk: cmd.KeepBytesPerStream}
	stdout := newStream(files.stdout, limits, cmd.Stdout, cmd.Redact)
	stderr := newStream(files.stderr, limits, cmd.Stderr, cmd.Redact)
	// Both streams whole fit, unless the policy lets them be very large.
	outputs := newOutputs(files.poll, stdout, stderr, newShown(min(2*cmd.MaxBytesPerStream, result.MaxStreamBytes), cmd.Redact))
	feeder := newFeeder(files.stdin, cmd.Stdin)
	isKept := false
	pipes := &Pipes{Child: files.child, Drained: outputs.done, Started: func(time.Time) {
		if cmd.OnStreams != nil {
			isKept = true
			cmd.OnStreams(stdout.capture.kept, stderr.capture.kept)
		}
	}}
	o := execute(pipes)
	pipes.Close()
	feeder.finish()
	outputs.finish(flushLimit)
	if o.Started {
		outputs.addTo(&o)
	}
	if !isKept {
		stdout.capture.kept.Drop()
		stderr.capture.kept.Drop()
	}
	return o
}

// capture keeps a stream, and looks at its encoding.
type capture struct {
	kept *kept.Stream
	utf8 validator
}

func newCapture(limits kept.Limits) *capture { return &capture{kept: kept.New(limits)} }

func (c *capture) write(p []byte) {
	// It doesn't fail.
	_, _ = c.kept.Write(p)
	c.utf8.write(p)
}

// finish ends the stream. whole says that it was read to its end.
func (c *capture) finish(whole bool) { c.kept.Finish(whole, flushLimit) }

// stream returns what was captured. It is for after the end.
func (c *capture) stream() result.Stream {
	info := c.kept.Info()
	s := result.Stream{Bytes: info.Bytes, SHA256: info.SHA256, InvalidUTF8: c.utf8.invalid || len(c.utf8.partial) > 0}
	s.Head, s.Tail = c.kept.Memory()
	return s
}

// validator checks whether a stream is UTF-8, however it is split.
type validator struct {
	// partial is the beginning of a character at the end of the last write.
	partial []byte
	invalid bool
}

func (v *validator) write(p []byte) {
	if len(v.partial) > 0 {
		p = append(v.partial, p...)
	}
	whole := result.TrimPartialEnd(p)
	v.invalid = v.invalid || !utf8.Valid(whole)
	v.partial = bytes.Clone(p[len(whole):])
}
