package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
)

const checkLong = `Say what would become of a call, without running it: whether it would be allowed, by which policy, in which
environment and directory, with which command line, time limit and variables. It takes the same flags as run.

The API server is asked to admit the call without keeping it, and then the operator's own rules are applied to what
you may read of environments, skills and policies. Of variables the names and sources are shown, and values only of
those that the call sets itself.

The exit code is 0 when the call would be allowed, 126 when it would be denied, and 125 when it would fail before it
started or when it can't be told, e.g. for lack of a right. What only the pod knows (whether the program and the
directory are there) is left open.`

const checkExample = `  kubectl toolcall check -- git push
  kubectl toolcall check --env repo --shell 'make test | tail'
  kubectl toolcall check --code python -f script.py
  kubectl toolcall check --as system:serviceaccount:agents:agent -- git status`

func newCheck(s *session) *cobra.Command {
	var flags callFlags
	command := &cobra.Command{
		Use:         "check [flags] -- PROGRAM [ARGUMENT...]",
		Short:       "Say whether a call would be allowed, and with what it would run",
		Long:        checkLong,
		Example:     checkExample,
		Annotations: map[string]string{annotationCode: "yes"},
		RunE: func(command *cobra.Command, args []string) error {
			call, err := flags.build(args, s.In)
			if err != nil {
				return err
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			call.Namespace = c.namespace
			return s.check(command.Context(), c, call)
		},
	}
	flags.add(command, s)
	return command
}

func (s *session) check(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) error {
	v, err := foresee(ctx, c, call)
	if err != nil {
		return err
	}
	if err := v.write(s.Out); err != nil {
		return err
	}
	switch {
	case v.refusal != nil && v.refusal.Denied:
		return &exitError{code: codeDenied}
	case v.refusal != nil:
		return &exitError{code: codeFailed}
	case v.unknown != nil:
		return &exitError{code: codeFailed, err: fmt.Errorf("it can't be told whether the call would be allowed: %w", v.unknown)}
	default:
		return nil
	}
}

// errUnreadable marks what can't be foreseen since the caller may not read something.
var errUnreadable = errors.New("not readable")
