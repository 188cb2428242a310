package sessions

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
)

const sessionExecLong = `Run one call in a session, show its output, and exit with its exit code. It is short for run --session NAME.

If other calls of the session run, the call waits for its turn. Ctrl-C cancels the call; the session goes on.

` + cli.ExitCodesHelp

const sessionExecExample = `  kubectl toolcall session exec dev -- git status
  kubectl toolcall session exec dev --shell 'cd repo && make test | tail'
  kubectl toolcall session exec dev --background -- python3 -m http.server`

func newSessionExec(c *cli.CLI) *cobra.Command {
	o := calls.NewRunOptions(c)
	var program []string
	command := &cobra.Command{
		Use:         "exec NAME [flags] -- PROGRAM [ARGUMENT...]",
		Short:       "Run a call in a session and exit with its exit code",
		Long:        sessionExecLong,
		Example:     sessionExecExample,
		Annotations: map[string]string{cli.AnnotationCode: "yes"},
		Args: func(command *cobra.Command, args []string) error {
			name, rest, err := splitExec(args, command.ArgsLenAtDash())
			o.Call.SetSession(name)
			program = rest
			return err
		},
		RunE:              c.Connected(func(ctx context.Context, cluster *cli.Cluster, _ []string) error { return o.Run(ctx, cluster, program) }),
		ValidArgsFunction: c.CompleteArguments(1, cli.ListSessions),
	}
	cli.HintAtFlags(command, "flags of the program follow --, as in kubectl toolcall session exec NAME -- PROGRAM -x")
	o.Call.AddAction(command)
	o.AddFlags(command)
	return command
}

// splitExec separates the name of the session from the program. dash is the number of arguments before --, or -1.
func splitExec(args []string, dash int) (name string, program []string, err error) {
	switch {
	case len(args) == 0 || dash == 0 || args[0] == "":
		return "", nil, errors.New("specify the name of the session before the program: \"kubectl toolcall session list\" lists the sessions")
	case dash < 0 && len(args) > 1:
		return "", nil, fmt.Errorf("put -- before the program: kubectl toolcall session exec %s -- %s", args[0], cli.Quoted(args[1:]))
	case dash > 1:
		return "", nil, fmt.Errorf("only the name of the session can stand before --, not %s", cli.Quoted(args[:dash]))
	default:
		return args[0], args[1:], nil
	}
}
