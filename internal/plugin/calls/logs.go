package calls

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const logsLong = `Print the output of calls: all of it, also what their status doesn't have.

Standard output goes to standard output, standard error to standard error; --stream selects one. Of a call that runs, print
its output so far, or with -f go on until the call has finished. --offset and --limit select bytes of each stream, --tail
its last lines.

-f begins with all that there is, or with what --tail selects, waits for a call that hasn't started, and goes on where it was
when a connection breaks or the operator is restarted. A line "note:" on standard error says which part of a long stream
wasn't kept.

Of several calls, each line begins with the name of its call, in brackets; --prefix=false turns that off. Without -f they
come one after the other, and with -l and --all the oldest call comes first.

--since leaves out calls that ended longer ago. Output has no times: it is printed whole, or as --tail says, for every call
that ran within that time.

The exit code is 0 whatever the outcome of the calls: use wait to get that. It is 1 if output can't be read, and if -l or --all
select no call.

On a terminal, control characters in the output appear in visible form. --raw turns that off. Pipes and files get every byte
unchanged.`

const logsExample = `  kubectl toolcall logs nightly
  kubectl toolcall logs -f nightly
  kubectl toolcall logs nightly --tail 20
  kubectl toolcall logs -l team=search --since 10m --tail 5
  kubectl toolcall logs nightly --stream stdout > out.bin     # byte for byte
  kubectl toolcall logs nightly --offset 0 --limit 4096`

// maxFollowed is how many calls logs -f follows at the same time: each takes two requests.
const maxFollowed = 50

// logsOptions are the flags of logs.
type logsOptions struct {
	callTargets
	stream        string
	offset, limit int64
	tail          int
	since         time.Duration
	following     bool
	prefix        bool
	changed       func(flag string) bool
}

func newLogs(c *cli.CLI) *cobra.Command {
	o := &logsOptions{}
	command := &cobra.Command{
		Use:               "logs [-f] (NAME... | -l SELECTOR | --all)",
		Short:             "Print the output of calls",
		Long:              logsLong,
		Example:           logsExample,
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListCalls),
		RunE:              c.Connected(o.run),
	}
	c.AddRawFlag(command)
	o.callTargets.add(command)
	cli.CheckBefore(command, o.validate)
	flags := command.Flags()
	o.changed = flags.Changed
	flags.BoolVarP(&o.following, "follow", "f", false, "follow the output until the calls have finished")
	cli.AddChoice(command, &o.stream, "stream", "", "print only this stream: stdout or stderr", string(output.Stdout), string(output.Stderr))
	flags.Int64Var(&o.offset, "offset", 0, "print each stream from this byte on, counted from 0")
	flags.Int64Var(&o.limit, "limit", 0, "print at most so many bytes of each stream (default: all)")
	flags.IntVar(&o.tail, "tail", -1, "print only so many last lines of each stream; -1 means all")
	flags.DurationVar(&o.since, "since", 0, "leave out calls that ended longer ago, e.g. 10m")
	flags.BoolVar(&o.prefix, "prefix", false, "begin each line with the name of its call (default: for several calls)")
	return command
}

func (o *logsOptions) validate([]string) error {
	switch {
	case o.offset < 0:
		return fmt.Errorf("--offset %d: must not be negative; the first byte is 0", o.offset)
	case o.limit < 0 || o.limit == 0 && o.changed("limit"):
		return fmt.Errorf("--limit %d: must be at least 1; without --limit, all is printed", o.limit)
	case o.tail < -1:
		return fmt.Errorf("--tail %d: must be a number of lines, or -1 for all", o.tail)
	case o.tail >= 0 && (o.changed("offset") || o.changed("limit")):
		return errors.New("--tail can't be used together with --offset or --limit: it counts lines from the end, they count bytes from the start")
	case o.since < 0 || o.since == 0 && o.changed("since"):
		return fmt.Errorf("--since %s: must be how long ago, e.g. 10m", o.since)
	default:
		return nil
	}
}

// streams are those that are printed.
func (o *logsOptions) streams() []output.Stream {
	if o.stream != "" {
		return []output.Stream{output.Stream(o.stream)}
	}
	return []output.Stream{output.Stdout, output.Stderr}
}

// run prints the output of calls.
func (o *logsOptions) run(ctx context.Context, c *cli.Cluster, names []string) error {
	chosen, err := o.resolve(ctx, c, names)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		return o.noneSelected(c)
	}
	calls, failed := o.readCalls(ctx, c, chosen)
	if o.following && len(calls) > maxFollowed {
		return fmt.Errorf("-f follows at most %d calls at the same time, and these are more: choose fewer with -l, with --since or by name", maxFollowed)
	}
	prefixed := o.prefix || len(chosen) > 1 && !o.changed("prefix")
	shared := &sync.Mutex{}
	errs := each(ctx, len(calls), o.following, func(ctx context.Context, i int) error {
		p := &printer{Cluster: c, call: calls[i], options: o, mu: shared, prefixed: prefixed}
		return p.run(ctx)
	})
	return errors.Join(append(failed, errs...)...)
}

// each prints n things, one after the other or all at the same time, until nothing can be written any more.
func each(ctx context.Context, n int, together bool, print func(ctx context.Context, i int) error) []error {
	errs := make([]error, n)
	group, ctx := errgroup.WithContext(ctx)
	if !together {
		group.SetLimit(1)
	}
	for i := range n {
		group.Go(func() error {
			if ctx.Err() == nil {
				errs[i] = print(ctx, i)
			}
			if isUnwritten(errs[i]) {
				return errs[i]
			}
			return nil
		})
	}
	_ = group.Wait()
	return errs
}

// isUnwritten reports that an error is of what was printed, and not of what was read.
func isUnwritten(err error) bool { return errors.As(err, new(*cli.ExitError)) }

// readCalls reads the calls whose output is printed, and of those that are followed no more than show that they are too many.
func (o *logsOptions) readCalls(ctx context.Context, c *cli.Cluster, chosen []metav1.ObjectMeta) (calls []*v1alpha1.ToolCall, failed []error) {
	for i := range chosen {
		if o.following && len(calls) > maxFollowed {
			break
		}
		call, err := c.GetCall(ctx, chosen[i].Name)
		switch {
		case err != nil:
			failed = append(failed, err)
		case o.since > 0 && follow.Finished(call) && time.Since(call.FinishedAt()) > o.since:
			if !o.isSelection() {
				fmt.Fprintf(c.ErrOut, "call %s ended more than %s ago: to see its output, leave out --since\n", terminal.SafeLine(call.Name), o.since)
			}
		default:
			calls = append(calls, call)
		}
	}
	return calls, failed
}

// printer prints the streams of a call.
type printer struct {
	*cli.Cluster
	call    *v1alpha1.ToolCall
	options *logsOptions
	// mu keeps the streams' pieces and the notes apart where they go to one place. All calls share it.
	mu *sync.Mutex
	// prefixed says that each line begins with the name of the call.
	prefixed bool
}

// run prints the output of the call, or says why there is none.
func (p *printer) run(ctx context.Context) error {
	if err := p.print(ctx); err != nil {
		return err
	}
	call := p.call
	if p.options.following {
		var err error
		if call, err = p.GetCall(ctx, call.Name); apierrors.IsNotFound(err) {
			return nil // It was deleted at its end, after all of its output.
		} else if err != nil {
			return err
		}
	}
	switch s := &call.Status; {
	case s.Phase.Terminal() && s.Streams == nil:
		p.say("call %s has no recorded output: %s (%s): %s", call.Name, s.Phase, s.Reason, s.Message)
	case s.Phase == "" || s.Phase == v1alpha1.PhasePending:
		p.say("call %s has not started: to wait for it, run kubectl toolcall logs -f %s", call.Name, call.Name)
	}
	return nil
}

// print prints each stream to its place. Those that are followed are printed at the same time.
func (p *printer) print(ctx context.Context) error {
	streams := p.options.streams()
	errs := each(ctx, len(streams), p.options.following, func(ctx context.Context, i int) error {
		err := p.copy(ctx, streams[i])
		if err == nil || isUnwritten(err) {
			return err
		}
		return p.readError(streams[i], err)
	})
	p.mu.Lock()
	p.Flush()
	p.mu.Unlock()
	return errors.Join(errs...)
}

func (p *printer) copy(ctx context.Context, stream output.Stream) (err error) {
	to := p.Out
	if stream == output.Stderr {
		to = p.ErrOut
	}
	to = &cli.LockedWriter{Mu: p.mu, Out: to}
	if p.prefixed {
		lines := &prefixWriter{out: to, prefix: "[" + terminal.SafeLine(p.call.Name) + "] "}
		defer func() { err = cmp.Or(err, written(lines.end())) }() // The last line, if it has no end.
		to = lines
	}
	offset, err := p.begin(ctx, stream)
	if err != nil {
		return err
	}
	query := outputclient.Query{
		Namespace: p.call.Namespace, Name: p.call.Name, UID: p.call.UID, Stream: stream,
		Offset: offset, Limit: p.options.limit, Follow: p.options.following,
	}
	if !p.options.following {
		query.Patience = cli.OutputPatience
	}
	_, err = p.Output.Copy(ctx, query, outputclient.Sink{
		Write: func(b []byte) error {
			_, err := to.Write(b)
			return written(err)
		},
		Missing: func(start, end int64) {
			p.say("note: %d bytes of %s, from offset %d on, were not kept", end-start, stream, start)
		},
		Retrying: func(err error) { p.say("note: %s can't be read at the moment, retrying: %s", stream, err) },
	})
	return err
}

// written is the error of a write, if there is one, as that of the command.
func written(err error) error {
	if err == nil {
		return nil
	}
	return cli.OutputError(err, cli.CodeError)
}

// begin is the offset from which a stream is printed.
func (p *printer) begin(ctx context.Context, stream output.Stream) (int64, error) {
	hasOutput := p.call.Status.Streams != nil || p.call.Status.Phase == v1alpha1.PhaseRunning
	if p.options.tail < 0 || !hasOutput {
		return p.options.offset, nil
	}
	return tailOffset(ctx, p.Cluster, p.call, stream, p.options.tail)
}

// say prints a message for the user.
func (p *printer) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Note(false, format, args...)
}

// readError says what somebody can do who can't read a stream.
func (p *printer) readError(stream output.Stream, err error) error {
	switch {
	case errors.Is(err, outputclient.ErrNotServed):
		return fmt.Errorf("read %s: %w; the status of the call has the first and the last part: kubectl toolcall describe %s", stream, err, p.call.Name)
	case apierrors.IsGone(err):
		return fmt.Errorf("%w; the status of the call may have a part: kubectl toolcall describe %s", err, p.call.Name)
	default:
		return fmt.Errorf("read %s: %w", stream, follow.ExplainOutput(err))
	}
}

// maxPrefixedLine bounds how much of a line is held back until its end. A longer line is printed in parts.
const maxPrefixedLine = 64 << 10

// prefixWriter writes whole lines, each behind a prefix, so that the lines of several calls don't mix.
type prefixWriter struct {
	out    io.Writer
	prefix string
	held   []byte
}

// Write holds back what isn't a whole line.
func (w *prefixWriter) Write(p []byte) (int, error) {
	w.held = append(w.held, p...)
	end := bytes.LastIndexByte(w.held, '\n') + 1
	if end == 0 && len(w.held) < maxPrefixedLine {
		return len(p), nil
	}
	if end == 0 {
		return len(p), w.end()
	}
	lines := w.held[:end]
	w.held = append([]byte{}, w.held[end:]...)
	return len(p), w.writeLines(lines)
}

// end writes what was held back, as a line.
func (w *prefixWriter) end() error {
	if len(w.held) == 0 {
		return nil
	}
	line := append(w.held, '\n')
	w.held = nil
	return w.writeLines(line)
}

func (w *prefixWriter) writeLines(lines []byte) error {
	var text bytes.Buffer
	for line := range bytes.Lines(lines) {
		text.WriteString(w.prefix)
		text.Write(line)
	}
	_, err := w.out.Write(text.Bytes())
	return err
}
