package docs

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

// program is one of docs/examples.
type program struct {
	// args are those of its command line for a call.
	args func(namespace, name, line string) []string
	env  []string
	// tells says that its exit code is 1 for a call that didn't succeed.
	tells bool
}

func TestPythonClient(t *testing.T) {
	full.Only(t, "the example programs run as agents")
	needCluster(t)
	t.Parallel()
	interpreter := python(t)
	testProgram(t, "docs-python", program{tells: true, args: func(namespace, name, line string) []string {
		return []string{interpreter, "docs/examples/python/run_tool.py", namespace, name, line}
	}})
}

// The examples in TypeScript share one installation: the second uses the first one's file.
func TestTypeScriptClients(t *testing.T) {
	full.Only(t, "the example programs need Node.js and its packages")
	needCluster(t)
	t.Parallel()
	env := []string{"PATH=" + node(t)}
	folder := installedExamples(t, env)
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		testProgram(t, "docs-typescript", program{env: env, tells: true, args: func(namespace, name, line string) []string {
			return []string{"env", "node", filepath.Join(folder, "typescript", "run-tool.ts"), namespace, name, line}
		}})
	})
	t.Run("langchain", func(t *testing.T) {
		t.Parallel()
		testProgram(t, "docs-langchain", program{env: env, args: func(namespace, name, line string) []string {
			return []string{"env", "node", filepath.Join(folder, "langchain", "run-tool.ts"), namespace, "conversation", name, line}
		}})
	})
}

// installedExamples copies the examples with their packages, and checks the types of those in TypeScript.
func installedExamples(t *testing.T, env []string) string {
	t.Helper()
	folder := t.TempDir()
	copyFolder(t, "docs/examples", folder)
	for _, example := range []string{"typescript", "langchain"} {
		installed := filepath.Join(folder, example, "node_modules")
		if err := errors.Join(os.RemoveAll(installed), os.Symlink(nodeModules(t, example), installed)); err != nil {
			t.Fatal(err)
		}
		tsc := []string{"env", "node", filepath.Join(installed, ".bin", "tsc"), "--noEmit", "-p", filepath.Join(folder, example)}
		command{args: tsc, env: env}.must(t)
	}
	return folder
}

// Only AlreadyExists says that an earlier request created the call. The first answer is another conflict, as of a quota.
func TestExamplesRepeatARequestThatConflicts(t *testing.T) {
	full.Only(t, "the example programs need Node.js and its packages")
	t.Parallel()
	for name, args := range map[string]func(t *testing.T) (line, env []string){
		"python": func(t *testing.T) (line, env []string) {
			return []string{python(t), "docs/examples/python/run_tool.py"}, nil
		},
		"typescript": func(t *testing.T) (line, env []string) {
			env = []string{"PATH=" + node(t)}
			return []string{"env", "node", filepath.Join(installedExamples(t, env), "typescript", "run-tool.ts")}, env
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line, env := args(t)
			reasons := make(chan string, 2)
			reasons <- "Conflict"
			reasons <- "AlreadyExists"
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodPost {
					w.WriteHeader(http.StatusConflict)
					fmt.Fprintf(w, `{"kind":"Status","status":"Failure","code":409,"reason":%q}`, <-reasons)
					return
				}
				fmt.Fprintln(w, `{"type":"ADDED","object":{"metadata":{"name":"c"},"status":{"phase":"Succeeded","reason":"Completed","message":"m",`+
					`"output":"done","conditions":[{"type":"Finished","status":"True"}]}}}`)
			}))
			t.Cleanup(server.Close)
			config := filepath.Join(t.TempDir(), "kubeconfig")
			text := fmt.Sprintf(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],`+
				`"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":{}}]}`, server.URL)
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out := command{args: append(line, "agents", "c", "true"), env: append(env, "KUBECONFIG="+config)}.must(t)
			if out != "done\n" || len(reasons) > 0 {
				t.Errorf("it printed %q, with %d answers left", out, len(reasons))
			}
		})
	}
}

// testProgram runs a program as an agent that may do nothing but create calls and use some tools.
func testProgram(t *testing.T, namespace string, p program) {
	apply(t, strings.NewReplacer("toolcall-agents", namespace, "name: two-agents", "name: "+namespace).
		Replace(read(t, "config/samples/two-agents.yaml")))
	builder, reviewer := agent(t, namespace, "builder"), agent(t, namespace, "reviewer")

	// The nanoseconds tell whether the same name ran once or twice.
	const line = "echo hello; date +%s.%N"
	first, failed := p.runAs(t, builder, namespace, "first", line)
	if failed || !strings.HasPrefix(first, "hello\n") || !strings.Contains(first, "\n\nTook ") {
		t.Errorf("the program printed %q, failed: %t", first, failed)
	}
	if again, _ := p.runAs(t, builder, namespace, "first", line); again != first {
		t.Errorf("run again with the same name it printed %q, before %q", again, first)
	}
	expectCalls(t, namespace, 1)

	said, failed := p.runAs(t, builder, namespace, "failing", "echo half; exit 3")
	if failed != p.tells || !strings.Contains(said, "half\n\nCommand exited with code 3\n\nTook ") {
		t.Errorf("of a failing command it printed %q, failed: %t", said, failed)
	}
	said, failed = p.runAs(t, reviewer, namespace, "denied", "echo never")
	if failed != p.tells || !strings.Contains(said, `may not use the tool "bash"`) {
		t.Errorf("of a denied call it printed %q, failed: %t", said, failed)
	}
	expectCalls(t, namespace, 3)

	// Without an environment nothing can have run, so that the program tries again, under other names.
	kubectl("delete", "execenv", "-n", namespace, "tools", "--wait").must(t)
	said, failed = p.runAs(t, builder, namespace, "nowhere", "echo never")
	if failed != p.tells || strings.Contains(said, "never") {
		t.Errorf("without an environment it printed %q, failed: %t", said, failed)
	}
	expectCalls(t, namespace, 6)
}

// runAs gives what the program printed and whether its exit code said that the call failed.
func (p program) runAs(t *testing.T, kubeconfig, namespace, name, line string) (string, bool) {
	t.Helper()
	c := command{args: p.args(namespace, name, line), env: append([]string{"KUBECONFIG=" + kubeconfig}, p.env...)}
	out, errOut, err := c.run(t)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 || strings.Contains(errOut, "Error")) {
		t.Fatalf("%s: %v\n%s%s", strings.Join(c.args, " "), err, out, errOut)
	}
	return out, err != nil
}

func expectCalls(t *testing.T, namespace string, want int) {
	t.Helper()
	list := &v1alpha1.ToolCallList{}
	get(t, list, "-n", namespace, "tc")
	if len(list.Items) != want {
		t.Errorf("%d calls are there, want %d", len(list.Items), want)
	}
}

// agent makes a kubeconfig that holds nothing but a token of the account.
func agent(t *testing.T, namespace, account string) string {
	t.Helper()
	user := "system:serviceaccount:" + namespace + ":" + account
	awaitRight(t, user, "create", "toolcalls.toolcall.dev", "-n", namespace)
	awaitRight(t, user, "use", "tools.toolcall.dev/ls", "-n", namespace)
	token := strings.TrimSpace(kubectl("create", "token", account, "-n", namespace).must(t))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubectl("config", "view", "--minify", "--flatten").must(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(args ...string) { kubectl(append([]string{"--kubeconfig=" + path, "config"}, args...)...).must(t) }
	set("delete-user", strings.TrimSpace(kubectl("config", "view", "--minify", "-o", "jsonpath={.users[0].name}").must(t)))
	set("set-credentials", "agent", "--token="+token)
	set("set-context", "--current", "--user=agent")
	if said, _, err := (command{args: []string{kubectlPath(), "--kubeconfig=" + path, "get", "secrets", "-n", namespace}}).run(t); err == nil {
		t.Fatalf("the agent may read Secrets, so that the test shows nothing: %s", said)
	}
	return path
}
