package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/testing/full"
)

// example is a command of a page and what the page says that it prints.
type example struct{ command, printed string }

// examples are the commands of a page's console blocks, in order.
func examples(page string) []example {
	var all []example
	inside := false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		switch command, isCommand := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case isCommand:
			all = append(all, example{command: command})
		case len(all) > 0:
			all[len(all)-1].printed += line + "\n"
		}
	}
	return all
}

// matches compares line by line; an ellipsis stands for anything within its line.
func matches(want, got string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(got)
}

// Every command on docs/kubectl.md does what the page says.
func TestPluginPageIsTrue(t *testing.T) {
	full.Only(t, "the plugin's tests run its commands before an API server")
	t.Parallel()
	sp := newSpace(t)
	raw, err := os.ReadFile(filepath.Join(sp.root, "docs", "kubectl.md"))
	must(t, err)
	all := examples(string(raw))
	if len(all) < 15 {
		t.Fatalf("only %d examples were found", len(all))
	}
	// One shell runs them all, so that $? is the code of the command before.
	const mark = "\x1e"
	var script strings.Builder
	script.WriteString("kubectl() { local first=$1; shift; command kubectl \"$first\" -n " + sp.namespace + " \"$@\"; }\n")
	for _, e := range all {
		script.WriteString(e.command + "\ncode=$?; printf '" + mark + "'; (exit $code)\n")
	}
	// All of them one after the other, beside other tests.
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	plugin := sp.pluginCommand(t, ctx)
	shell := exec.CommandContext(ctx, "bash", "-c", script.String())
	shell.Dir, shell.Env = plugin.Dir, plugin.Env
	out, _ := shell.CombinedOutput()
	printed := strings.Split(string(out), mark)
	for i, e := range all {
		if i >= len(printed)-1 {
			t.Fatalf("the shell ended before %q", e.command)
		}
		got := withoutProgress(printed[i])
		// A format that prints no newline is shown with one.
		if !matches(e.printed, got) && !matches(strings.TrimSuffix(e.printed, "\n"), got) {
			t.Errorf("$ %s\nprints\n%s\nnot\n%s", e.command, got, e.printed)
		}
	}
}

// withoutProgress leaves out what is said when a pod takes long to start.
func withoutProgress(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, ": waiting") && line != "waiting for the operator\n" {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
