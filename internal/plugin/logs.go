package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const logsLong = `Print the output of a call: all of it, also what its status doesn't have.

Standard output goes to standard output, standard error to standard error; --stream selects one. Of a call that runs, print
its output so far, or with -f go on until the call has finished. --offset and --limit select bytes of each stream.

-f begins with all that there is, waits for a call that hasn't started, and goes on where it was when a connection breaks or
the operator is restarted. A line "note:" on standard error says which part of a long stream wasn't kept. The exit code
is 0 whatever the outcome of the call: use wait to get that.

On a terminal, control characters in the output appear in visible form. --raw turns that off. Pipes and files get every byte
unchanged.`

const logsExample = `  kubectl toolcall logs nightly
  kubectl toolcall logs -f nightly
  kubectl toolcall logs nightly --stream stdout > out.bin     # byte for byte
  kubectl toolcall logs nightly --offset 1048576 --limit 4096`

// logsPatience is how long the output of a call may be away until logs without -f gives up.
const logsPatience = 30 * time.Second

// logsOptions are the flags of logs.
type logsOptions struct {
	stream        string
	offset, limit int64
	following     bool
	changed       func(flag string) bool
}

func newLogs(c *cli) *cobra.Command {
	o := &logsOptions{}
	command := &cobra.Command{
		Use:               "logs [-f] NAME",
		Short:             "Print the output of a call",
		Long:              logsLong,
		Example:           logsExample,
		Args:              requireCall,
		ValidArgsFunction: c.completeCalls(1),
		RunE: func(command *cobra.Command, args []string) error {
			o.changed = command.Flags().Changed
			if err := o.validate(); err != nil {
				return err
			}
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			return c.logs(command.Context(), cluster, args[0], o)
		},
	}
	c.addRawFlag(command)
	flags := command.Flags()
	flags.BoolVarP(&o.following, "follow", "f", false, "follow the output until the call has finished")
	flags.StringVar(&o.stream, "stream", "", "print only this stream: stdout or stderr")
	flags.Int64Var(&o.offset, "offset", 0, "print each stream from this byte on, counted from 0")
	flags.Int64Var(&o.limit, "limit", 0, "print at most so many bytes of each stream (default: all)")
	must(command.RegisterFlagCompletionFunc("stream", completeFrom(string(output.Stdout), string(output.Stderr))))
	return command
}

func (o *logsOptions) validate() error {
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

func (c *cli) logs(ctx context.Context, cluster *cluster, name string, o *logsOptions) error {
	call, err := cluster.getCall(ctx, name)
	if err != nil {
		return err
	}
	p := &printer{cli: c, cluster: cluster, call: call, options: o}
	if err := p.print(ctx); err != nil {
		return err
	}
	return c.explainSilence(ctx, cluster, call, o)
}

// explainSilence says why a call has no output that has nothing else to say.
func (c *cli) explainSilence(ctx context.Context, cluster *cluster, call *v1alpha1.ToolCall, o *logsOptions) error {
	if o.following {
		var err error
		if call, err = cluster.getCall(ctx, call.Name); err != nil {
			return err
		}
	}
	switch s := &call.Status; {
	case s.Phase.Terminal() && s.Streams == nil:
		fmt.Fprintf(c.ErrOut, "call %s has no recorded output: %s (%s): %s\n", call.Name, s.Phase, s.Reason, terminal.Safe(s.Message))
	case s.Phase == "" || s.Phase == v1alpha1.PhasePending:
		fmt.Fprintf(c.ErrOut, "call %s has not started: to wait for it, run kubectl toolcall logs -f %s\n", call.Name, call.Name)
	}
	return nil
}

// printer prints the streams of a call.
type printer struct {
	*cli
	cluster *cluster
	call    *v1alpha1.ToolCall
	options *logsOptions
	// mu keeps the streams' pieces and the notes apart where they go to one place.
	mu sync.Mutex
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
	p.flush()
	var failed []error
	for i, err := range errs {
		switch {
		case isLostReader(err):
			return &exitError{code: codePipe}
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
	query := outputclient.Query{
		Namespace: p.call.Namespace, Name: p.call.Name, UID: p.call.UID, Stream: stream,
		Offset: p.options.offset, Limit: p.options.limit, Follow: p.options.following,
	}
	if !p.options.following {
		query.Patience = logsPatience
	}
	_, err := p.cluster.output.Copy(ctx, query, outputclient.Sink{
		Write: func(b []byte) error { return p.write(to, b) },
		Missing: func(start, end int64) {
			p.note("%d bytes of %s, from offset %d on, were not kept", end-start, stream, start)
		},
		Retrying: func(err error) { p.note("%s can't be read at the moment, retrying: %s", stream, err) },
	})
	return err
}

func (p *printer) write(to io.Writer, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := to.Write(b); err != nil {
		return lostReader{err}
	}
	return nil
}

func (p *printer) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.ErrOut, "note: "+terminal.Safe(fmt.Sprintf(format, args...)))
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
