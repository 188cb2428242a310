// Package plugin is the kubectl plugin: one file for each command, listed in newRoot.
//
// Input is a command line, a kubeconfig as kubectl reads it, and the standard streams. A command reads its flags
// into an options struct, connects, does one thing through internal/follow or a plain read, and prints: results to
// standard output, what a person should know to standard error.
//
// Invariants: an error names what would be right; what came from a call or a cluster can't steer a terminal unless
// it is the command's own output, which is passed on byte for byte; Main never returns 0 for something that
// didn't happen. The package must not decide what may run: that is internal/guards and internal/decide, also for
// check.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Main runs a command line and gives the exit code.
func Main(args []string) int {
	ctrllog.SetLogger(logr.Discard())
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	root := newRoot(streams)
	root.SetArgs(args)
	return execute(root, streams)
}

// execute runs the command and says what went wrong.
func execute(root *cobra.Command, streams genericiooptions.IOStreams) int {
	command, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return 0
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: failureCode(command), err: err}
	}
	if exit.err != nil {
		fmt.Fprintln(streams.ErrOut, "error: "+visible(exit.err.Error()))
	}
	return exit.code
}

// exitError ends the program with a code of its own. Nothing more is printed without an err.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// newRoot lists all commands.
func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	s := &session{IOStreams: streams, flags: flags}
	root := &cobra.Command{
		Use:           "kubectl-toolcall",
		Short:         "Run tool calls, follow them and see why they ended as they did",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl toolcall"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(
		newRun(s), newCheck(s), newLogs(s), newWait(s), newCancel(s),
		newGet(s), newDescribe(s), newExplainDenial(s), newEnv(s),
		newConvertCommand(), newVersion(s),
	)
	for name, complete := range map[string]completer{
		"namespace": s.completeNamespaces, "context": s.completeContexts, "cluster": s.completeClusters, "user": s.completeUsers,
	} {
		must(root.RegisterFlagCompletionFunc(name, complete))
	}
	return root
}

// must is for what only a mistake in the program's own text can make fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
