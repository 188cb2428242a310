package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
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

const (
	// logsPatience is how long the output of a call may be away until logs without -f gives up.
	logsPatience = 30 * time.Second
	// maxFollowed is how many calls logs -f follows at the same time: each takes two requests.
	maxFollowed = 50
)

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

func newLogs(c *cli) *cobra.Command {
	o := &logsOptions{}
	command := &cobra.Command{
		Use:               "logs [-f] (NAME... | -l SELECTOR | --all)",
		Short:             "Print the output of calls",
		Long:              logsLong,
		Example:           logsExample,
		Args:              o.args,
		ValidArgsFunction: c.completeArguments(-1, listCalls),
		RunE: func(command *cobra.Command, args []string) error {
			o.changed = command.Flags().Changed
			if err := o.validateFlags(); err != nil {
				return err
			}
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			return c.logs(command.Context(), cluster, args, o)
		},
	}
	c.addRawFlag(command)
	o.callTargets.add(command)
	flags := command.Flags()
	flags.BoolVarP(&o.following, "follow", "f", false, "follow the output until the calls have finished")
	flags.StringVar(&o.stream, "stream", "", "print only this stream: stdout or stderr")
	flags.Int64Var(&o.offset, "offset", 0, "print each stream from this byte on, counted from 0")
	flags.Int64Var(&o.limit, "limit", 0, "print at most so many bytes of each stream (default: all)")
	flags.IntVar(&o.tail, "tail", -1, "print only so many last lines of each stream; -1 means all")
	flags.DurationVar(&o.since, "since", 0, "leave out calls that ended longer ago, e.g. 10m")
	flags.BoolVar(&o.prefix, "prefix", false, "begin each line with the name of its call (default: for several calls)")
	must(command.RegisterFlagCompletionFunc("stream", completeFrom(string(output.Stdout), string(output.Stderr))))
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
func (c *cli) logs(ctx context.Context, cluster *cluster, names []string, o *logsOptions) error {
	names, err := o.resolve(ctx, cluster, names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return o.noneSelected(cluster)
	}
	if o.following && len(names) > maxFollowed {
		return fmt.Errorf("-f follows at most %d calls at the same time, and these are %d: choose fewer with -l or by name", maxFollowed, len(names))
	}
	calls, failed := c.readCalls(ctx, cluster, names, o)
	prefixed := o.prefix || len(names) > 1 && !o.changed("prefix")
	shared := &sync.Mutex{}
	errs := make([]error, len(calls))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for i, call := range calls {
		p := &printer{cli: c, cluster: cluster, call: call, options: o, mu: shared, prefixed: prefixed}
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
	var exit *exitError
	return errors.As(err, &exit) && exit.code == codePipe
}

// readCalls reads the calls whose output is printed.
func (c *cli) readCalls(ctx context.Context, cluster *cluster, names []string, o *logsOptions) (calls []*v1alpha1.ToolCall, failed []error) {
	for _, name := range names {
		call, err := cluster.getCall(ctx, name)
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
