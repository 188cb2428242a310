package plugin

import (
	"errors"

	"github.com/spf13/cobra"
)

// addEnvironmentFlag adds the flag that names an ExecutionEnvironment.
func addEnvironmentFlag(command *cobra.Command, c *cli, to *string, usage string) {
	command.Flags().StringVar(to, "environment", "", usage)
	must(command.RegisterFlagCompletionFunc("environment", c.complete(listEnvironments)))
}

// addVariableFlag adds the flag that sets variables, and refuses --env, which could mean a variable or an environment.
func addVariableFlag(command *cobra.Command, to *[]string, usage string) {
	flags := command.Flags()
	flags.StringArrayVarP(to, "set-env", "e", nil, usage)
	flags.Var(ambiguousEnv{}, "env", "")
	flags.Lookup("env").Hidden = true
	// "--env NAME" is refused for its name, also where the value is missing.
	flags.Lookup("env").NoOptDefVal = "-"
	must(command.RegisterFlagCompletionFunc("set-env", cobra.NoFileCompletions))
}

// errAmbiguousEnv says what --env could mean.
var errAmbiguousEnv = errors.New("--env could mean two things: to choose the environment of a call or a new session, use --environment NAME; to set a variable, use -e NAME=VALUE")

// ambiguousEnv is the value of --env: it takes none.
type ambiguousEnv struct{}

func (ambiguousEnv) String() string   { return "" }
func (ambiguousEnv) Set(string) error { return errAmbiguousEnv }
func (ambiguousEnv) Type() string     { return "string" }
