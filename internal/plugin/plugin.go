// Package plugin implements the kubectl plugin: one file for each command. newRoot lists the commands.
//
// Input is a command line, a kubeconfig as kubectl reads it, and the standard streams. A command reads its flags
// into an options struct, connects to the cluster, does its work through internal/follow or a plain read, and
// prints. Results go to standard output, messages to standard error.
//
// Invariants: an error says how to correct it; nothing reaches a terminal except through internal/plugin/terminal,
// unless the user sets --raw; the exit code is 0 only when the command did what it was asked to do. The package must
// not decide what may run: internal/decide does, also for check.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd/api"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// Main runs a command line and returns the exit code.
func Main(args []string) int {
	ctrllog.SetLogger(logr.Discard())
	return newCLI(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}).execute(args)
}

// execute runs a command line, prints its error, and returns the exit code.
func (c *cli) execute(args []string) int {
	root := newRoot(c)
	root.SetArgs(args)
	defer c.flush()
	command, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return 0
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: failureCode(command), err: err}
	}
	if errors.Is(exit.err, errAmbiguousEnv) {
		exit.err = errAmbiguousEnv // Without what the flag parser writes before it.
	}
	if exit.err != nil {
		c.flush()
		fmt.Fprintln(c.ErrOut, "error: "+terminal.Safe(exit.err.Error()))
	}
	return exit.code
}

// exitError ends the program with the given exit code. Without err, nothing more is printed.
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
func newRoot(c *cli) *cobra.Command {
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
	c.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(
		newRun(c), newRerun(c), newCheck(c), newLogs(c), newAttach(c), newWait(c), newCancel(c), newDelete(c), newCp(c), newArtifacts(c),
		newGet(c), newDescribe(c), newExplainDenial(c), newSession(c), newEnv(c), newTools(c), newTop(c),
		newConvert(), newDoctor(c), newVersion(c),
	)
	for name, complete := range map[string]completer{
		"namespace": c.complete(listNamespaces),
		"context":   c.completeConfig(func(config *api.Config) []string { return keys(config.Contexts) }),
		"cluster":   c.completeConfig(func(config *api.Config) []string { return keys(config.Clusters) }),
		"user":      c.completeConfig(func(config *api.Config) []string { return keys(config.AuthInfos) }),
	} {
		must(root.RegisterFlagCompletionFunc(name, complete))
	}
	completeHelp(root)
	return root
}

// must panics on errors that only a mistake in the program's own text can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
