// Package cli has what all commands of the kubectl plugin share: the program with its streams and flags, the clients of a cluster, formats,
// tables and descriptions, progress, completion, exit codes, and errors that say how to correct them.
//
// It must not know any command: those import it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd/api"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// CLI holds what all commands share: the standard streams and kubectl's flags.
type CLI struct {
	commands func(*CLI) []*cobra.Command
	// Out and ErrOut make control characters visible where they lead to a terminal.
	genericiooptions.IOStreams
	// Unfiltered are the streams as they were given.
	Unfiltered genericiooptions.IOStreams
	filters    []*terminal.Writer
	Flags      *genericclioptions.ConfigFlags
}

func New(streams genericiooptions.IOStreams, commands func(*CLI) []*cobra.Command) *CLI {
	c := &CLI{commands: commands, IOStreams: streams, Unfiltered: streams, Flags: genericclioptions.NewConfigFlags(true)}
	for _, out := range []*io.Writer{&c.Out, &c.ErrOut} {
		if terminal.Is(*out) {
			filter := terminal.NewWriter(*out)
			*out, c.filters = filter, append(c.filters, filter)
		}
	}
	return c
}

// AddRawFlag gives a command the flag that turns the filter for terminals off.
func (c *CLI) AddRawFlag(command *cobra.Command) {
	raw := command.Flags().Bool("raw", false, "print control characters unchanged on a terminal too: the output can then control the terminal")
	command.PreRun = func(*cobra.Command, []string) {
		if *raw {
			c.IOStreams = c.Unfiltered
		}
	}
}

// Flush passes on what the filters hold back. A failed write shows at the next one, or there is none.
func (c *CLI) Flush() {
	for _, filter := range c.filters {
		_ = filter.Flush()
	}
}

// Execute runs a command line, prints its error, and returns the exit code.
func (c *CLI) Execute(args []string) int {
	root := NewRoot(c)
	root.SetArgs(args)
	defer c.Flush()
	command, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return 0
	}
	exit := &ExitError{Code: CodeError, Err: err}
	if command.Annotations[AnnotationCode] != "" {
		exit.Code = CodeFailed
	}
	errors.As(err, &exit)
	var wrong *flagError
	if errors.As(err, &wrong) {
		err = wrong
	}
	if exit.Err != nil {
		c.Flush()
		// All of it: the one with the exit code can be joined with others.
		fmt.Fprintln(c.ErrOut, "error: "+terminal.Safe(err.Error()))
	}
	return exit.Code
}

// ExitError ends the program with the given exit code. Without err, nothing more is printed.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// NewRoot lists all commands.
func NewRoot(c *CLI) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-toolcall",
		Short:         "Run and inspect tool calls",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl toolcall"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.ErrOut)
	c.Flags.AddFlags(root.PersistentFlags())
	root.AddCommand(c.commands(c)...)
	for name, complete := range map[string]Completer{
		"namespace": c.Complete(ListNamespaces),
		"context":   c.completeConfig(func(config *api.Config) iter.Seq[string] { return maps.Keys(config.Contexts) }),
		"cluster":   c.completeConfig(func(config *api.Config) iter.Seq[string] { return maps.Keys(config.Clusters) }),
		"user":      c.completeConfig(func(config *api.Config) iter.Seq[string] { return maps.Keys(config.AuthInfos) }),
	} {
		Must(root.RegisterFlagCompletionFunc(name, complete))
	}
	// Local files are proposed only where they are meant.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for _, file := range []string{"kubeconfig", "certificate-authority", "client-certificate", "client-key"} {
		Must(root.RegisterFlagCompletionFunc(file, CompleteFiles))
	}
	documentExitCodes(root)
	return root
}

// Group is a command that only has others.
func Group(command *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	command.Args = cobra.NoArgs
	command.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	command.AddCommand(commands...)
	return command
}

// Must panics on errors that only a mistake in the program's own text can cause.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Note prints a message about what a command did.
func (c *CLI) Note(quiet bool, format string, args ...any) {
	if !quiet {
		fmt.Fprintln(c.ErrOut, terminal.Safe(fmt.Sprintf(format, args...)))
	}
}

// CheckBefore has arguments and flags checked before a command runs, after what was checked before.
func CheckBefore(command *cobra.Command, check func(args []string) error) {
	before := command.Args
	command.Args = func(command *cobra.Command, args []string) error {
		if before != nil {
			if err := before(command, args); err != nil {
				return err
			}
		}
		return check(args)
	}
}

// AddTimeoutFlag adds the flag --timeout.
func AddTimeoutFlag(command *cobra.Command, to *time.Duration, usage string) {
	command.Flags().DurationVar(to, "timeout", 0, usage+"; 0 means no timeout")
	CheckBefore(command, func([]string) error {
		if *to < 0 {
			return fmt.Errorf("--timeout %s: must not be negative; 0 means no timeout", *to)
		}
		return nil
	})
}

// Within ends with a timeout, if there is one.
func Within(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return parent, func() {}
	}
	return context.WithTimeout(parent, timeout)
}

// EndedBySignals ends with the signals by which a user stops a program, so that it can remove what isn't complete.
func EndedBySignals(parent context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
}
