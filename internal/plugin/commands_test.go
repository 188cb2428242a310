package plugin

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
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
	add(newRoot(newCLI(genericiooptions.IOStreams{})))
	return all
}

// Every command says what it does and how it exits, shows examples of itself, and completes its arguments and flags.
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
		if c.ValidArgsFunction == nil {
			t.Errorf("%s doesn't complete its arguments", name)
		}
		c.Flags().VisitAll(func(flag *pflag.Flag) {
			_, isFile := flag.Annotations[cobra.BashCompFilenameExt]
			_, completes := c.GetFlagCompletionFunc(flag.Name)
			if flag.Value.Type() != "bool" && !isFile && !completes {
				t.Errorf("%s --%s isn't completed", name, flag.Name)
			}
			if flag.Usage == "" && !flag.Hidden {
				t.Errorf("%s --%s isn't explained", name, flag.Name)
			}
		})
	}
}

// notAsObjects are the commands without -o json and yaml, and why.
var notAsObjects = map[string]string{
	"artifacts":     "its -o is the file that an artifact is written to; describe -o json has the list",
	"attach":        "it prints what the call writes",
	"convert":       "it prints manifests, in YAML",
	"cp":            "it copies files",
	"delete":        "the objects are gone; like kubectl's, it prints names",
	"logs":          "it prints what calls write",
	"session shell": "it prints what the calls of its lines write",
}

// Every command prints objects for programs, proposes the formats and names them, or has a reason not to.
func TestEveryCommandPrintsObjects(t *testing.T) {
	t.Parallel()
	config := offline(t)
	for name, c := range allCommands() {
		flag, got := c.Flags().Lookup("output"), ""
		if flag != nil && name != "artifacts" {
			got = completions(t, config, "n", append(strings.Fields(name), "-o", "")...)
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
