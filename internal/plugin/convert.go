package plugin

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/convert"
	"toolcall.dev/operator/internal/plugin/cli"
)

const convertLong = `Print manifests for an agent's TOML configuration.

A table array of named environments (name, cwd, env) becomes ExecutionEnvironments. The environment that default_env
names becomes the default of the namespace. A table of limits (allow_shell_mode, allowed_commands,
default_timeout_secs, max_timeout_secs, env_blocklist) becomes an ExecutionPolicy. The command
finds both by their keys, whatever the tables are called.

Manifests go to standard output. Remarks on what was converted, changed or left out go to standard error. If there is
an error, nothing goes to standard output.`

const convertExample = `  kubectl toolcall convert -f agent.toml -n agents --image registry.example/tools:1 | kubectl apply -f -
  kubectl toolcall convert -f - --image registry.example/tools:1 --policy-name agents < agent.toml`

// convertOptions are the flags of convert.
type convertOptions struct {
	filename string
	convert.Options
}

func newConvert() *cobra.Command {
	o := &convertOptions{}
	command := &cobra.Command{
		Use:     "convert -f FILE --image IMAGE",
		Short:   "Print manifests for an agent's TOML configuration",
		Long:    convertLong,
		Example: convertExample,
		Args:    cli.RequireNothing,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.run(command.InOrStdin(), command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.filename, "filename", "f", "", "TOML file, or - for standard input (required)")
	flags.StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the environments")
	flags.StringVar(&o.Image, "image", "", "image of the environments (required if there are any)")
	flags.StringVar(&o.PolicyName, "policy-name", "",
		"name of the policy, or of an existing policy if the file has no limits (default \""+convert.DefaultPolicyName+"\" if the file has limits)")
	flags.StringVar(&o.EnvironmentsKey, "environments-key", "", "key of the environments, e.g. execution.environments, if more than one table qualifies")
	flags.StringVar(&o.PolicyKey, "policy-key", "", "key of the limits, e.g. tools, if more than one table qualifies")
	cli.Must(command.MarkFlagFilename("filename", "toml"))
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

// read returns the document, cut one byte after the size limit.
func (o *convertOptions) read(stdin io.Reader) ([]byte, error) {
	if o.filename == "" {
		return nil, errors.New("specify the TOML file with --filename (-f), - for standard input")
	}
	in, err := cli.Open(o.filename, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, convert.MaxSourceBytes+1))
}
