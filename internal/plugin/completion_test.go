package plugin

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestNamesFromTheClusterAreCompleted(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Environment("one", true)
	f.Environment("other", false)
	f.Detached("first")
	f.Detached("second")
	f.Session("dev")
	f.Session("deep")
	for line, want := range map[string]string{
		"logs ":                        "first second",
		"logs s":                       "second",
		"logs first ":                  "second",
		"describe first ":              "",
		"rerun f":                      "first",
		"delete first ":                "second",
		"env describe ":                "one other",
		"get --requested-by a":         "admin",
		"describe ":                    "first second",
		"explain-denial f":             "first",
		"wait ":                        "first second",
		"wait first ":                  "second",
		"cancel second f":              "first",
		"get x":                        "",
		"run --environment ":           "one other",
		"check --environment ot":       "other",
		"run --skill ":                 "",
		"env suspend ":                 "one other",
		"env suspend one ":             "other",
		"env resume o":                 "one other",
		"run --session ":               "deep dev",
		"check --session dev":          "dev",
		"get --session de":             "deep dev",
		"session describe ":            "deep dev",
		"session describe dev ":        "",
		"session shell d":              "deep dev",
		"session exec dee":             "deep",
		"session end dev ":             "deep",
		"session suspend ":             "deep dev",
		"session resume ":              "deep dev",
		"cp d":                         "deep: dev:",
		"cp file d":                    "deep: dev:",
		"cp ./d":                       "",
		"session start --environment ": "one other",
		"session start ":               "",
		"--namespace " + f.Namespace:   f.Namespace,
	} {
		words := strings.Split(line, " ")
		// The API server answers from its cache, which may be behind.
		f.Eventually(fmt.Sprintf("completion of %q to %q", line, want), func() bool {
			return plugintest.Completions(t, f.Kubeconfig, f.Namespace, words...) == want
		})
	}
}

// Calls have their output in the status: only their metadata is read for the names.
func TestNamesAreCompletedFromMetadata(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("first")
	var mu sync.Mutex
	var accepted []string
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		accepted = append(accepted, r.Header.Get("Accept"))
		mu.Unlock()
		next.ServeHTTP(w, r)
	})
	f.Eventually("completion to the call's name", func() bool {
		return plugintest.Completions(t, config, f.Namespace, "logs", "") == "first"
	})
	for _, accept := range accepted {
		if !strings.Contains(accept, "as=PartialObjectMetadataList") {
			t.Errorf("asked for %q", accept)
		}
	}
}

func TestFixedValuesAreCompleted(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	for line, want := range map[string]string{
		"get --phase ":            "Cancelled Denied Failed Pending Running Succeeded",
		"run --live ":             "always never",
		"logs --stream ":          "stderr stdout",
		"run --dry-run=":          "client none server",
		"run --network-host ":     "",
		"run --network-h":         "--network-host",
		"check --policy-file ":    "json yaml yml",
		"policy test ":            "json yaml yml",
		"run --code ":             "bash javascript perl python ruby sh",
		"--context ":              "c",
		"--cluster ":              "k",
		"--user ":                 "",
		"e":                       "env explain-denial",
		"env ":                    "describe list resume suspend",
		"session ":                "describe end exec list resume shell start suspend",
		"session list --phase ":   "Ended Pending Ready Suspended",
		"session start --retain ": "Delete Keep",
	} {
		if got := plugintest.Completions(t, config, "n", strings.Split(line, " ")...); got != want {
			t.Errorf("%q completes to %q, not %q", line, got, want)
		}
	}
}

// Without a cluster, or without a kubeconfig, there is nothing to propose and no error to see.
func TestCompletionWithoutACluster(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, config := range []string{plugintest.Offline(t), broken} {
		for _, line := range []string{"logs ", "run --environment ", "--namespace ", "env suspend "} {
			if got := plugintest.Completions(t, config, "n", strings.Split(line, " ")...); got != "" {
				t.Errorf("%q completes to %q", line, got)
			}
		}
	}
	if got := plugintest.Completions(t, broken, "n", "--context", ""); got != "" {
		t.Errorf("contexts of a broken kubeconfig: %q", got)
	}
}

// Local files are proposed for what is a file, and for the arguments of a program.
func TestFilesAreCompletedWhereTheyAreMeant(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	for line, want := range map[string]cobra.ShellCompDirective{
		"--kubeconfig ":        cobra.ShellCompDirectiveDefault,
		"--client-key ":        cobra.ShellCompDirectiveDefault,
		"run --filename ":      cobra.ShellCompDirectiveDefault,
		"run ls ":              cobra.ShellCompDirectiveDefault,
		"policy test ":         cobra.ShellCompDirectiveFilterFileExt,
		"policy diff a ":       cobra.ShellCompDirectiveFilterFileExt,
		"check --policy-file ": cobra.ShellCompDirectiveFilterFileExt,
		"--request-timeout ":   cobra.ShellCompDirectiveNoFileComp,
		"run --set-env ":       cobra.ShellCompDirectiveNoFileComp,
		"logs --offset ":       cobra.ShellCompDirectiveNoFileComp,
		"top ":                 cobra.ShellCompDirectiveNoFileComp,
		"session start ":       cobra.ShellCompDirectiveNoFileComp,
	} {
		out, _, code := plugintest.CommandAt(config, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if code != 0 || !strings.HasSuffix(strings.TrimSpace(out), fmt.Sprintf(":%d", want)) {
			t.Errorf("%q: exit code %d, %q, not directive %d", line, code, out, want)
		}
	}
}
