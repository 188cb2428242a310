package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// completionTimeout bounds how long the shell waits after the tab key.
const completionTimeout = 3 * time.Second

type Completer = cobra.CompletionFunc

func CompleteFrom(values ...string) Completer {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// CompleteFiles has the shell propose local files of any name.
var CompleteFiles = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)

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
		names, directive := c.Complete(func(ctx context.Context, cluster *Cluster) ([]string, error) {
			rights, err := cluster.ToolRights(ctx, nil)
			if err != nil {
				return nil, err
			}
			return rights.Programs(), nil
		})(command, args, prefix)
		if directive != cobra.ShellCompDirectiveError {
			directive = cobra.ShellCompDirectiveDefault
		}
		return names, directive
	}
}

// These list the names of objects in the namespace.
var (
	ListCalls        = listNames(v1alpha1.GroupVersion, "ToolCall")
	ListEnvironments = listNames(v1alpha1.GroupVersion, "ExecutionEnvironment")
	ListSessions     = listNames(v1alpha1.GroupVersion, "ToolSession")
	ListSkills       = listNames(v1alpha1.GroupVersion, "Skill")
	ListNamespaces   = listNames(corev1.SchemeGroupVersion, "Namespace")
)

// listNames reads the metadata alone: calls have their output in the status.
func listNames(version schema.GroupVersion, kind string) Lister {
	return func(ctx context.Context, c *Cluster) (names []string, err error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(version.WithKind(kind))
		err = c.Client.List(ctx, list, client.InNamespace(c.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, err
	}
}

// completeConfig completes names that the kubeconfig has.
func (c *CLI) completeConfig(names func(*api.Config) iter.Seq[string]) Completer {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		config, err := c.Flags.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return withPrefix(slices.Collect(names(&config)), prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

func withPrefix(names []string, prefix string) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	slices.Sort(names)
	return names
}

// plainExitCodes is part of the help of commands whose help says nothing else about their exit code.
const plainExitCodes = "The exit code is 0 if the command did what it was asked to do, and 1 otherwise."

// documentExitCodes has the help of all commands say how they exit.
func documentExitCodes(command *cobra.Command) {
	for _, child := range command.Commands() {
		documentExitCodes(child)
	}
	if !command.HasSubCommands() && !strings.Contains(strings.ToLower(command.Long), "exit code") {
		command.Long = strings.TrimSpace(command.Long + "\n\n" + plainExitCodes)
	}
}

// These accept the name of one object, or of one or more.
var (
	RequireCall         = requireNames(1, `the name of one call: "kubectl toolcall get" lists the calls`)
	RequireEnvironments = requireNames(math.MaxInt, `the names of the environments: "kubectl toolcall env list" lists the environments`)
	RequireSession      = requireNames(1, `the name of one session: "kubectl toolcall session list" lists the sessions`)
	RequireSessions     = requireNames(math.MaxInt, `the names of the sessions: "kubectl toolcall session list" lists the sessions`)
)

// RequireNothing refuses arguments of a command that takes none: cobra.NoArgs takes them for commands.
func RequireNothing(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q: %s takes no arguments, only flags: see %[2]s --help", args[0], command.CommandPath())
	}
	return nil
}

func requireNames(most int, which string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) > most || slices.Contains(args, "") {
			return errors.New("specify " + which)
		}
		return nil
	}
}

// AddChoice adds a flag that has one of a few values.
func AddChoice(command *cobra.Command, to *string, flag, value, usage string, choices ...string) {
	*to = value
	last := len(choices) - 1
	command.Flags().Func(flag, usage, Parsed(func(text string) error {
		if !slices.Contains(choices, text) {
			return fmt.Errorf("--%s=%s: must be %s or %s", flag, text, strings.Join(choices[:last], ", "), choices[last])
		}
		*to = text
		return nil
	}))
	command.Flags().Lookup(flag).DefValue = value
	Must(command.RegisterFlagCompletionFunc(flag, CompleteFrom(choices...)))
}

// AddSelectorFlag adds the flag that selects objects by their labels.
func AddSelectorFlag(command *cobra.Command, to *string, usage string) {
	command.Flags().FuncP("selector", "l", usage, Parsed(func(text string) error {
		if _, err := labels.Parse(text); err != nil {
			return fmt.Errorf("--selector %q: must be a label selector, e.g. team=search: %w", text, err)
		}
		*to = text
		return nil
	}))
}

// AddPhaseFlag adds the flag that selects objects in some phases, of those that there are.
func AddPhaseFlag(command *cobra.Command, to *[]string, phases []string, usage string) {
	all := strings.Join(phases, ", ")
	command.Flags().StringSliceVar(to, "phase", nil, usage+": "+all)
	Must(command.RegisterFlagCompletionFunc("phase", CompleteFrom(phases...)))
	CheckBefore(command, func([]string) error {
		if len(*to) == 0 && command.Flags().Changed("phase") {
			return errors.New("--phase: give a phase, or leave the flag out")
		}
		for _, phase := range *to {
			if !ContainsFold(phases, phase) {
				return fmt.Errorf("--phase %q: must be one of %s", phase, all)
			}
		}
		return nil
	})
}

// flagError says all that there is to say about a flag: what the flag parser writes before it is left out.
type flagError struct{ error }

// Parsed is how a flag's values are parsed, one by one. The errors name the flag.
func Parsed(parse func(text string) error) func(string) error {
	return func(text string) error {
		if err := parse(text); err != nil {
			return &flagError{err}
		}
		return nil
	}
}

// HintAtFlags has the errors of a command's flags end with a hint, those that name the flag themselves too, but for one that says it all.
func HintAtFlags(command *cobra.Command, hint string) {
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		var wrong *flagError
		if errors.As(err, &wrong) {
			err = wrong.error
		}
		if errors.Is(err, errAmbiguousEnv) {
			return wrong
		}
		return &flagError{fmt.Errorf("%w: %s", err, hint)}
	})
}

// AddNameFlag adds a flag that names something. A variable of a script may be empty: that is no name.
func AddNameFlag(command *cobra.Command, flag, usage string, complete Completer, set func(name string)) {
	command.Flags().Func(flag, usage, Parsed(func(name string) error {
		if name == "" {
			return fmt.Errorf("--%s: give a name, or leave the flag out", flag)
		}
		set(name)
		return nil
	}))
	Must(command.RegisterFlagCompletionFunc(flag, complete))
}

// AddReferenceFlag adds the flag that names the object of a reference.
func AddReferenceFlag(command *cobra.Command, to **v1alpha1.LocalReference, flag, usage string, complete Completer) {
	AddNameFlag(command, flag, usage, complete, func(name string) { *to = &v1alpha1.LocalReference{Name: name} })
}

// AddSecondsFlag adds a flag for a duration in whole seconds, of which there are some at least.
func AddSecondsFlag(command *cobra.Command, to **int32, flag, usage string, least time.Duration) {
	command.Flags().Func(flag, usage, Parsed(func(text string) error {
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return fmt.Errorf("--%s: %w", flag, err)
		case d >= 0 && d < least:
			return fmt.Errorf("--%s %s: must be at least %s", flag, d, least)
		case d < 0 || d%time.Second != 0 || d/time.Second > math.MaxInt32:
			return fmt.Errorf("--%s %s: must be whole seconds, for example 90s or 5m", flag, d)
		}
		*to = ptr.To(int32(d / time.Second))
		return nil
	}))
}

// AddVariableFlag adds the flag that sets variables, and refuses --env, which could mean a variable or an environment.
func AddVariableFlag(command *cobra.Command, to *[]v1alpha1.CallEnvVar, usage string) {
	flags := command.Flags()
	flags.FuncP("set-env", "e", usage, Parsed(func(pair string) error {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return fmt.Errorf("-e %q: must be NAME=VALUE%s", pair, environmentHint(command))
		}
		*to = append(*to, v1alpha1.CallEnvVar{Name: name, Value: value})
		return CheckText(fmt.Sprintf("-e %q", pair), pair)
	}))
	flags.Func("env", "", Parsed(func(string) error { return errAmbiguousEnv }))
	flags.Lookup("env").Hidden = true
	// "--env NAME" is refused for its name, also where the value is missing.
	flags.Lookup("env").NoOptDefVal = "-"
}

// environmentHint is for those who take the flag for variables for that of the environment, where a command has one.
func environmentHint(command *cobra.Command) string {
	if command.Flags().Lookup("environment") == nil {
		return ""
	}
	return "; to choose an environment, use --environment"
}

// errAmbiguousEnv says what --env could mean.
var errAmbiguousEnv = errors.New("--env could mean two things: to choose the environment of a call or a new session, use --environment NAME; to set a variable, use -e NAME=VALUE")

// CheckText refuses what isn't UTF-8. JSON has no such bytes: the API would have another text.
func CheckText(what, text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s is not UTF-8 text: a call can only carry text, so encode the data, for example with base64", what)
	}
	return nil
}

func ContainsFold(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, text) })
}
