package plugin

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/convert"
)

const convertLong = `Print manifests for an agent's TOML configuration.

A table array of named environments (name, cwd, env) becomes ExecutionEnvironments, and the one that
default_env names the namespace's default. A table of limits (allow_shell_mode, allowed_commands,
default_timeout_secs, max_timeout_secs, env_blocklist) becomes an ExecutionPolicy. Both are found by the
keys they hold, whatever the tables are called.

Manifests are printed to standard output. What was taken, changed or left out is printed to standard
error; nothing is printed to standard output when there is an error.`

const convertExample = `  kubectl toolcall convert -f agent.toml -n agents --image registry.example/tools:1 | kubectl apply -f -
  kubectl toolcall convert -f - --image registry.example/tools:1 --policy-name agents < agent.toml`

// convertOptions are the flags of convert.
type convertOptions struct {
	filename string
	convert.Options
}

func newConvertCommand() *cobra.Command {
	o := &convertOptions{}
	command := &cobra.Command{
		Use:     "convert -f FILE --image IMAGE",
		Short:   "Print manifests for an agent's TOML configuration",
		Long:    convertLong,
		Example: convertExample,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.run(command.InOrStdin(), command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.filename, "filename", "f", "", "the TOML file, or - for standard input (required)")
	flags.StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the environments")
	flags.StringVar(&o.Image, "image", "", "image of the environments (required when there are any)")
	flags.StringVar(&o.PolicyName, "policy-name", "",
		"name of the policy; without limits in the file, of one that exists (default \""+convert.DefaultPolicyName+"\" when there are limits)")
	flags.StringVar(&o.EnvironmentsKey, "environments-key", "", "where the environments stand, e.g. execution.environments, when that isn't clear")
	flags.StringVar(&o.PolicyKey, "policy-key", "", "where the limits stand, e.g. tools, when that isn't clear")
	return command
}

func (o *convertOptions) run(stdin io.Reader, stdout, stderr io.Writer) error {
	source, err := o.read(stdin)
	if err != nil {
		return err
	}
	result, err := convert.Convert(source, o.Options)
	for _, remark := range result.Remarks {
		fmt.Fprintln(stderr, remark)
	}
	if errors.Is(err, convert.ErrNotConverted) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.filename, err)
	}
	_, err = stdout.Write(result.Manifests)
	return err
}

// read gives the document, no more of it than is needed to see that it is too long.
func (o *convertOptions) read(stdin io.Reader) ([]byte, error) {
	if o.filename == "" {
		return nil, errors.New("name the TOML file with --filename (-f), - for standard input")
	}
	if o.filename != "-" {
		file, err := os.Open(o.filename)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		stdin = file
	}
	return io.ReadAll(io.LimitReader(stdin, convert.MaxSourceBytes+1))
}
