package plugin

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// allCommands are the commands that do something, by their names.
func allCommands() map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	var add func(*cobra.Command)
	add = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			add(child)
		}
		if !c.HasSubCommands() {
			_, name, _ := strings.Cut(c.CommandPath(), "toolcall ")
			all[name] = c
		}
	}
	add(cli.NewRoot(plugintest.TestCLI(genericiooptions.IOStreams{})))
	return all
}

// Every command says what it does and how it exits, and shows examples of itself.
func TestEveryCommandIsWhole(t *testing.T) {
	t.Parallel()
	all := allCommands()
	if len(all) < 30 {
		t.Fatalf("only %d commands were found", len(all))
	}
	for name, c := range all {
		if c.Short == "" || !strings.Contains(strings.ToLower(c.Long), "exit code") {
			t.Errorf("%s doesn't say what it does or how it exits: %s", name, c.Long)
		}
		if !strings.Contains(c.Example, "kubectl toolcall "+name) {
			t.Errorf("%s has no example of itself: %s", name, c.Example)
		}
		c.Flags().VisitAll(func(flag *pflag.Flag) {
			if flag.Usage == "" && !flag.Hidden {
				t.Errorf("%s --%s isn't explained", name, flag.Name)
			}
		})
	}
}

// notAsObjects are the commands without -o json and yaml, and why.
var notAsObjects = map[string]string{
	"approve":       "it shows a person what to decide about, and asks",
	"artifacts":     "its -o is the file that an artifact is written to; describe -o json has the list",
	"attach":        "it prints what the call writes",
	"convert":       "it prints manifests, in YAML",
	"cp":            "it copies files",
	"init":          "it prints what became of several objects; --dry-run prints them, in YAML",
	"delete":        "the objects are gone; like kubectl's, it prints names",
	"logs":          "it prints what calls write",
	"session shell": "it prints what the calls of its lines write",
}

// Every command prints objects for programs, proposes the formats and names them, or has a reason not to.
func TestEveryCommandPrintsObjects(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	for name, c := range allCommands() {
		flag, got := c.Flags().Lookup("output"), ""
		if flag != nil && name != "artifacts" {
			got = plugintest.Completions(t, config, "n", append(strings.Fields(name), "-o", "")...)
			if !strings.Contains(got, "name") || !strings.Contains(flag.Usage, "name") {
				t.Errorf("%s -o completes to %q", name, got)
			}
		}
		has := flag != nil && strings.Contains(got, "json") && strings.Contains(got, "yaml") && strings.Contains(flag.Usage, "json")
		if isExcepted := notAsObjects[name] != ""; has == isExcepted {
			t.Errorf("%s: -o completes to %q, but it is an exception: %t", name, got, isExcepted)
		}
	}
}

// Flags after the program are the program's own.
func TestFlagsOfTheProgram(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	for line, want := range map[string]string{
		"ls -l --env x":                 "--env",
		"-- ls --dry-run":               "--dry-run",
		"--environment zone ls --env x": "name: zone",
	} {
		args := append([]string{"--kubeconfig", config, "run", "--dry-run"}, strings.Fields(line)...)
		if out, errs, code := plugintest.Run("", args...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d\n%s%s", line, code, out, errs)
		}
	}
}

// Each command has help with examples, and rejects unknown flags.
func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"run", "check", "logs", "wait", "cancel", "get", "describe", "explain-denial", "env", "env list", "session", "session start",
		"session list", "session describe", "session exec", "session shell", "session suspend", "session resume", "session end", "convert", "version",
	} {
		out, _, code := plugintest.Run("", append(strings.Fields(name), "--help")...)
		if code != 0 || !strings.Contains(out, "Examples:\n  ") || !strings.Contains(out, "kubectl toolcall "+name) {
			t.Errorf("%s: exit code %d\n%s", name, code, out)
		}
		if _, errs, code := plugintest.Run("", append(strings.Fields(name), "--no-such-flag")...); code == 0 || errs == "" {
			t.Errorf("%s takes an unknown flag", name)
		}
	}
	for _, line := range []string{
		"logs", "logs a b", "wait", "cancel", "describe", "explain-denial", "get --phase Odd", "get -A x", "wait x --timeout -1s",
		"session describe", "session describe a b", "session suspend", "session end", "session shell", "session shell a b", "session exec",
		"session list a", "session list --phase Odd", "session start a b", "session end a --timeout -1s",
	} {
		if _, errs, code := plugintest.Run("", strings.Fields(line)...); code == 0 || errs == "" {
			t.Errorf("%q: exit code %d, %q", line, code, errs)
		}
	}
}

// --env could mean an environment or a variable, so it is refused with both, wherever variables can be set.
func TestEnvFlagIsRefused(t *testing.T) {
	t.Parallel()
	const want = "error: --env could mean two things: to choose the environment of a call or a new session, use --environment NAME; to set a variable, use -e NAME=VALUE\n"
	for _, line := range []string{
		"run --env tools -- ls", "run --env A=1 -- ls", "run --env=tools -- ls", "run --env", "check --env tools -- ls", "session start --env tools",
		"session exec dev --env A=1 -- ls", "session shell dev --env A=1",
	} {
		if out, errs, code := plugintest.Run("", strings.Fields(line)...); code == 0 || out != "" || errs != want {
			t.Errorf("%s: exit code %d, %q, %q", line, code, out, errs)
		}
	}
	if out, _, _ := plugintest.Run("", "run", "--help"); strings.Contains(out, "--env ") || !strings.Contains(out, "--environment") {
		t.Errorf("the help names --env: %s", out)
	}
}
