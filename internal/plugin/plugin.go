// Package plugin implements the kubectl plugin. commands lists what it has, by package: each has a file for each of its larger commands,
// and cli has what they share.
//
// Input is a command line, a kubeconfig as kubectl reads it, and the standard streams. A command checks its flags and arguments,
// connects to the cluster, does its work through internal/follow or a plain read, and prints. Results go to standard output, messages
// to standard error.
//
// Invariants: an error says how to correct it; nothing reaches a terminal except through internal/plugin/terminal, unless the user sets
// --raw; the exit code is 0 only when the command did what it was asked to do. The package must not decide what may run: the operator
// does, which check asks, and internal/decide for policies in files.
package plugin

import (
	"os"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"toolcall.dev/operator/internal/plugin/approvals"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/doctor"
	"toolcall.dev/operator/internal/plugin/environments"
	"toolcall.dev/operator/internal/plugin/files"
	"toolcall.dev/operator/internal/plugin/initialize"
	"toolcall.dev/operator/internal/plugin/policy"
	"toolcall.dev/operator/internal/plugin/sessions"
)

// Main runs a command line and returns the exit code.
func Main(args []string) int {
	ctrllog.SetLogger(logr.Discard())
	return cli.New(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, commands).Execute(args)
}

// commands lists all commands.
func commands(c *cli.CLI) []*cobra.Command {
	return slices.Concat(
		[]*cobra.Command{newConvert()},
		calls.Commands(c), approvals.Commands(c), sessions.Commands(c), files.Commands(c), environments.Commands(c), policy.Commands(c),
		doctor.Commands(c), initialize.Commands(c),
	)
}
