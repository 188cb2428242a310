package calls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
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
		Args:              o.args,
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListCalls),
		RunE: func(command *cobra.Command, args []string) error {
			o.changed = command.Flags().Changed
			if err := o.validateFlags(); err != nil {
				return err
			}
			cluster, err := c.Connect()
			if err != nil {
				return err
			}
			return logs(command.Context(), c, cluster, args, o)
		},
	}
	c.AddRawFlag(command)
	o.callTargets.add(command)
	flags := command.Flags()
	flags.BoolVarP(&o.following, "follow", "f", false, "follow the output until the calls have finished")
	flags.StringVar(&o.stream, "stream", "", "print only this stream: stdout or stderr")
	flags.Int64Var(&o.offset, "offset", 0, "print each stream from this byte on, counted from 0")
	flags.Int64Var(&o.limit, "limit", 0, "print at most so many bytes of each stream (default: all)")
	flags.IntVar(&o.tail, "tail", -1, "print only so many last lines of each stream; -1 means all")
	flags.DurationVar(&o.since, "since", 0, "leave out calls that ended longer ago, e.g. 10m")
	flags.BoolVar(&o.prefix, "prefix", false, "begin each line with the name of its call (default: for several calls)")
	cli.Must(command.RegisterFlagCompletionFunc("stream", cli.CompleteFrom(string(output.Stdout), string(output.Stderr))))
	return command
}

func (o *logsOptions) validateFlags() error {
	switch o.stream {
	case "", string(output.Stdout), string(output.Stderr):
	default:
		return fmt.Errorf("--stream=%s: must be stdout or stderr", o.stream)
	}
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

// logs prints the output of calls.
func logs(ctx context.Context, c *cli.CLI, cluster *cli.Cluster, names []string, o *logsOptions) error {
	names, err := o.resolve(ctx, cluster, names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return o.noneSelected(cluster)
	}
	if o.following && len(names) > cli.MaxFollowed {
		return fmt.Errorf("-f follows at most %d calls at the same time, and these are %d: choose fewer with -l or by name", cli.MaxFollowed, len(names))
	}
	calls, failed := readCalls(ctx, c, cluster, names, o)
	prefixed := o.prefix || len(names) > 1 && !o.changed("prefix")
	shared := &sync.Mutex{}
	errs := make([]error, len(calls))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for i, call := range calls {
		p := &printer{CLI: c, cluster: cluster, call: call, options: o, mu: shared, prefixed: prefixed}
		running.Go(func() {
			if errs[i] = p.run(ctx); isLost(errs[i]) {
				cancel() // Nobody reads the other calls either.
			}
		})
		if o.following {
			continue
		}
		if running.Wait(); isLost(errs[i]) {
			break
		}
	}
	running.Wait()
	if i := slices.IndexFunc(errs, isLost); i >= 0 {
		return errs[i]
	}
	return errors.Join(append(failed, errs...)...)
}

// isLost reports that nobody reads what is printed.
func isLost(err error) bool {
	var exit *cli.ExitError
	return errors.As(err, &exit) && exit.Code == cli.CodePipe
}

// readCalls reads the calls whose output is printed.
func readCalls(ctx context.Context, c *cli.CLI, cluster *cli.Cluster, names []string, o *logsOptions) (calls []*v1alpha1.ToolCall, failed []error) {
	for _, name := range names {
		call, err := cluster.GetCall(ctx, name)
		switch {
		case err != nil:
			failed = append(failed, err)
		case o.since > 0 && endedBefore(call, time.Now().Add(-o.since)):
			if !o.isSelection() {
				fmt.Fprintf(c.ErrOut, "call %s ended more than %s ago: to see its output, leave out --since\n", terminal.SafeLine(name), o.since)
			}
		default:
			calls = append(calls, call)
		}
	}
	return calls, failed
}

// endedBefore reports whether a call ended before a time.
func endedBefore(call *v1alpha1.ToolCall, limit time.Time) bool {
	finished := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionFinished)
	return finished != nil && finished.Status == metav1.ConditionTrue && finished.LastTransitionTime.Time.Before(limit)
}

// printer prints the streams of a call.
type printer struct {
	*cli.CLI
	cluster *cli.Cluster
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
	return p.explainSilence(ctx)
}

// explainSilence says why a call has no output that has nothing else to say.
func (p *printer) explainSilence(ctx context.Context) error {
	call := p.call
	if p.options.following {
		var err error
		if call, err = p.cluster.GetCall(ctx, call.Name); apierrors.IsNotFound(err) {
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
	errs := make([]error, len(streams))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for i, stream := range streams {
		running.Go(func() {
			if errs[i] = p.copy(ctx, stream); isLostReader(errs[i]) {
				cancel()
			}
		})
		if !p.options.following {
			running.Wait()
		}
	}
	running.Wait()
	p.mu.Lock()
	p.Flush()
	p.mu.Unlock()
	var failed []error
	for i, err := range errs {
		switch {
		case isLostReader(err):
			return &cli.ExitError{Code: cli.CodePipe}
		case err != nil:
			failed = append(failed, p.readError(streams[i], err))
		}
	}
	return errors.Join(failed...)
}

// lostReader says that nobody reads what is printed.
type lostReader struct{ error }

func isLostReader(err error) bool {
	var lost lostReader
	return errors.As(err, &lost)
}

func (p *printer) copy(ctx context.Context, stream output.Stream) error {
	to := p.Out
	if stream == output.Stderr {
		to = p.ErrOut
	}
	write := func(b []byte) error { return p.write(to, b) }
	if p.prefixed {
		lines := &prefixWriter{mu: p.mu, out: to, prefix: "[" + terminal.SafeLine(p.call.Name) + "] "}
		defer func() { _ = lines.end() }() // A failed write shows at the one before, or nobody reads the last line.
		write = func(b []byte) error {
			if _, err := lines.Write(b); err != nil {
				return lostReader{err}
			}
			return nil
		}
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
	_, err = p.cluster.Output.Copy(ctx, query, outputclient.Sink{
		Write: write,
		Missing: func(start, end int64) {
			p.note("%d bytes of %s, from offset %d on, were not kept", end-start, stream, start)
		},
		Retrying: func(err error) { p.note("%s can't be read at the moment, retrying: %s", stream, err) },
	})
	return err
}

// begin is the offset from which a stream is printed.
func (p *printer) begin(ctx context.Context, stream output.Stream) (int64, error) {
	hasOutput := p.call.Status.Streams != nil || p.call.Status.Phase == v1alpha1.PhaseRunning
	if p.options.tail < 0 || !hasOutput {
		return p.options.offset, nil
	}
	return tailOffset(ctx, p.cluster, p.call, stream, p.options.tail)
}

func (p *printer) write(to io.Writer, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := to.Write(b); err != nil {
		return lostReader{err}
	}
	return nil
}

func (p *printer) note(format string, args ...any) { p.say("note: "+format, args...) }

// say prints a message for the user, which holds names and texts that others chose.
func (p *printer) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.ErrOut, terminal.Safe(fmt.Sprintf(format, args...)))
}

// readError says what somebody can do who can't read a stream.
func (p *printer) readError(stream output.Stream, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("read %s: it needs permission to get toolcalls/log in the group subresources.toolcall.dev, which the ClusterRoles toolcall-viewer and toolcall-user grant, and for a call of a session to be the session's creator or to use it: %w", stream, err)
	case errors.Is(err, outputclient.ErrNotServed):
		return fmt.Errorf("read %s: %w; the status of the call has the first and the last part: kubectl toolcall describe %s", stream, err, p.call.Name)
	case strings.Contains(err.Error(), "not kept"):
		return fmt.Errorf("%w; the status of the call may have a part: kubectl toolcall describe %s", err, p.call.Name)
	default:
		return fmt.Errorf("read %s: %w", stream, err)
	}
}

// maxPrefixedLine bounds how much of a line is held back until its end. A longer line is printed in parts.
const maxPrefixedLine = 64 << 10

// prefixWriter writes whole lines, each behind a prefix, so that the lines of several calls don't mix.
type prefixWriter struct {
	// mu is shared by all that write to the same place.
	mu     *sync.Mutex
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
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.out.Write(text.Bytes())
	return err
}
