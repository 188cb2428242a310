package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"

	"toolcall.dev/operator/api/v1alpha1"
)

// completionTimeout bounds how long the shell waits after the tab key.
const completionTimeout = 3 * time.Second

type Completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

func CompleteFrom(values ...string) Completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// Lister lists what an argument or the value of a flag can be.
type Lister func(context.Context, *Cluster) ([]string, error)

// Complete completes what a list has. On any error there is nothing.
func (c *CLI) Complete(list Lister) Completer {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		cluster, err := c.Connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := list(ctx, cluster)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return withPrefix(names, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteArguments completes up to limit different arguments, or any number if limit is negative.
func (c *CLI) CompleteArguments(limit int, list Lister) Completer {
	return func(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if limit >= 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, directive := c.Complete(list)(command, args, prefix)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
	}
}

// CompleteTools completes the program of a call with the tools that the user may use, and leaves its arguments to the shell.
func CompleteTools(c *CLI) Completer {
	return func(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		names, directive := c.Complete(listPrograms)(command, args, prefix)
		if directive != cobra.ShellCompDirectiveError {
			directive = cobra.ShellCompDirectiveDefault
		}
		return names, directive
	}
}

func ListCalls(ctx context.Context, c *Cluster) ([]string, error) {
	return c.names(ctx, &v1alpha1.ToolCallList{})
}

func ListEnvironments(ctx context.Context, c *Cluster) ([]string, error) {
	return c.names(ctx, &v1alpha1.ExecutionEnvironmentList{})
}

func ListSessions(ctx context.Context, c *Cluster) ([]string, error) {
	return c.names(ctx, &v1alpha1.ToolSessionList{})
}

func ListSkills(ctx context.Context, c *Cluster) ([]string, error) {
	return c.names(ctx, &v1alpha1.SkillList{})
}

// listPrograms lists the tools that the user may use.
func listPrograms(ctx context.Context, c *Cluster) ([]string, error) {
	rights, err := c.ToolRights(ctx, nil)
	if err != nil {
		return nil, err
	}
	return rights.Programs(), nil
}

func listNamespaces(ctx context.Context, c *Cluster) ([]string, error) {
	list, err := c.core.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// completeConfig completes names that the kubeconfig has.
func (c *CLI) completeConfig(names func(*api.Config) []string) Completer {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		config, err := c.Flags.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return withPrefix(names(&config), prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

func keys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	return names
}

func withPrefix(names []string, prefix string) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	slices.Sort(names)
	return names
}

// plainExitCodes is part of the help of commands whose help says nothing else about their exit code.
const plainExitCodes = "The exit code is 0 if the command did what it was asked to do, and 1 otherwise."

// completeHelp adds to all commands what they have in common: documented exit codes, and no proposals of local files for flags
// and arguments that take something else.
func completeHelp(command *cobra.Command) {
	for _, child := range command.Commands() {
		completeHelp(child)
	}
	if command.HasSubCommands() {
		return
	}
	if !strings.Contains(strings.ToLower(command.Long), "exit code") {
		command.Long = strings.TrimSpace(command.Long + "\n\n" + plainExitCodes)
	}
	if command.ValidArgsFunction == nil {
		command.ValidArgsFunction = cobra.NoFileCompletions
	}
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		_, isFile := flag.Annotations[cobra.BashCompFilenameExt]
		if _, isComplete := command.GetFlagCompletionFunc(flag.Name); isComplete || isFile || flag.Value.Type() == "bool" {
			return
		}
		Must(command.RegisterFlagCompletionFunc(flag.Name, cobra.NoFileCompletions))
	})
}

// RequireCall accepts the name of one call.
func RequireCall(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("specify the name of one call: \"kubectl toolcall get\" lists the calls")
	}
	return nil
}

// RequireEnvironments accepts the names of one or more environments.
func RequireEnvironments(_ *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "") {
		return errors.New("specify the names of the environments: \"kubectl toolcall env list\" lists the environments")
	}
	return nil
}

// RequireSession accepts the name of one session.
func RequireSession(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("specify the name of one session: \"kubectl toolcall session list\" lists the sessions")
	}
	return nil
}

// RequireSessions accepts the names of one or more sessions.
func RequireSessions(_ *cobra.Command, args []string) error {
	if len(args) == 0 || slices.Contains(args, "") {
		return errors.New("specify the names of the sessions: \"kubectl toolcall session list\" lists the sessions")
	}
	return nil
}

// AddEnvironmentFlag adds the flag that names an ExecutionEnvironment.
func AddEnvironmentFlag(command *cobra.Command, c *CLI, to *string, usage string) {
	command.Flags().StringVar(to, "environment", "", usage)
	Must(command.RegisterFlagCompletionFunc("environment", c.Complete(ListEnvironments)))
}

// AddVariableFlag adds the flag that sets variables, and refuses --env, which could mean a variable or an environment.
func AddVariableFlag(command *cobra.Command, to *[]string, usage string) {
	flags := command.Flags()
	flags.StringArrayVarP(to, "set-env", "e", nil, usage)
	flags.Var(ambiguousEnv{}, "env", "")
	flags.Lookup("env").Hidden = true
	// "--env NAME" is refused for its name, also where the value is missing.
	flags.Lookup("env").NoOptDefVal = "-"
	Must(command.RegisterFlagCompletionFunc("set-env", cobra.NoFileCompletions))
}

// errAmbiguousEnv says what --env could mean.
var errAmbiguousEnv = errors.New("--env could mean two things: to choose the environment of a call or a new session, use --environment NAME; to set a variable, use -e NAME=VALUE")

// ambiguousEnv is the value of --env: it takes none.
type ambiguousEnv struct{}

func (ambiguousEnv) String() string { return "" }

func (ambiguousEnv) Set(string) error { return errAmbiguousEnv }

func (ambiguousEnv) Type() string { return "string" }

// Reference is nil for no name.
func Reference(name string) *v1alpha1.LocalReference {
	if name == "" {
		return nil
	}
	return &v1alpha1.LocalReference{Name: name}
}

// Variables parses the values of --set-env.
func Variables(pairs []string) ([]v1alpha1.CallEnvVar, error) {
	var list []v1alpha1.CallEnvVar
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("-e %q: must be NAME=VALUE; to choose an environment, use --environment", pair)
		}
		list = append(list, v1alpha1.CallEnvVar{Name: name, Value: value})
	}
	return list, nil
}

func Seconds(flag string, d time.Duration) (int32, error) {
	if d < 0 || d%time.Second != 0 || d/time.Second > 1<<31-1 {
		return 0, fmt.Errorf("--%s %s: must be whole seconds, for example 90s or 5m", flag, d)
	}
	return int32(d / time.Second), nil
}

func ContainsFold(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, text) })
}
