package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// columns splits what kubectl get prints: at least two spaces stand between columns.
func columns(line string) []string {
	return regexp.MustCompile(` {2,}`).Split(strings.TrimRight(line, " "), -1)
}

func TestKubectlGetShowsWhatMatters(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	call := sp.run(t, shell("echo this is a command of more than forty characters; exit 3"))
	plain, err := sp.kubectl(t, "get", "tc", call.Name, "-n", sp.namespace)
	must(t, err)
	lines := strings.Split(strings.TrimSpace(plain), "\n")
	expectSame(t, "columns", []string{"NAME", "PHASE", "REASON", "EXIT", "ENVIRONMENT", "ACTION", "DURATION-MS", "AGE"}, columns(lines[0]))
	row := columns(lines[1])
	expectSame(t, "row", []string{call.Name, "Failed", "NonZeroExit", "3", defaultEnv, "echo this is a command of more than fort"}, row[:6])

	wide, err := sp.kubectl(t, "get", "toolcalls.toolcall.dev", call.Name, "-n", sp.namespace, "-o", "wide")
	must(t, err)
	lines = strings.Split(strings.TrimSpace(wide), "\n")
	expectSame(t, "wide columns", []string{"REQUESTED-BY", "SESSION", "STARTED", "CPU-MS", "MEMORY", "POD", "NODE"}, columns(lines[0])[8:])
	used := call.Status.Usage
	if used == nil || used.CPUMilliseconds == nil || call.Status.StartTime == nil {
		t.Fatalf("the call's usage is %+v, it started at %v", used, call.Status.StartTime)
	}
	started := call.Status.StartTime.UTC().Format(metav1.RFC3339Micro)
	want := []string{call.Spec.RequestedBy.Username, started, fmt.Sprint(*used.CPUMilliseconds)}
	if used.MaxRSSBytes != nil {
		// Otherwise the cell is empty: the command took no more memory than the runner.
		want = append(want, fmt.Sprint(*used.MaxRSSBytes))
	}
	expectSame(t, "wide row", append(want, call.Status.Pod, call.Status.Node), columns(lines[1])[8:])

	env, err := sp.kubectl(t, "get", "execenv", "-n", sp.namespace)
	must(t, err)
	for _, column := range []string{"IMAGE", "DEFAULT", "POLICY", "READY", "ACTIVE", "AGE", toolImage, sp.policy} {
		if !strings.Contains(env, column) {
			t.Errorf("kubectl get execenv lacks %s: %s", column, env)
		}
	}
	listed, err := sp.kubectl(t, "get", "toolcall-dev", "-n", sp.namespace)
	must(t, err)
	if !strings.Contains(listed, "toolcall.toolcall.dev/"+call.Name) {
		t.Errorf("kubectl get toolcall-dev doesn't list the call: %s", listed)
	}
}

func TestKubectlWaitAndLogs(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	call := sp.create(t, shell("echo first; sleep 1; echo last; exit 9"))
	said, err := sp.kubectl(t, "wait", "--for=condition=Finished", "tc/"+call.Name, "-n", sp.namespace, "--timeout=60s")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	done := sp.awaitFinished(t, call)
	expect(t, done, exited(9, "first\nlast\n", ""))
	log, err := sp.kubectl(t, "logs", done.Status.Pod, "-n", sp.namespace)
	must(t, err)
	if log != "first\nlast\n" {
		t.Errorf("the pod's log is %q", log)
	}
	output, err := sp.kubectl(t, "get", "tc", call.Name, "-n", sp.namespace, "-o", "jsonpath={.status.exitCode} {.status.stdout}")
	must(t, err)
	if output != "9 first\nlast\n" {
		t.Errorf("kubectl get -o jsonpath prints %q", output)
	}
}

func TestKubectlExplain(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	for field, wants := range map[string][]string{
		"toolcall":                                   {"one tool call of one agent", "GROUP: toolcall.dev"},
		"toolcall.spec.shell":                        {"shell runs a command line", "command\t<string> -required-"},
		"toolcall.spec.cancel":                       {"false to true", "<boolean>"},
		"toolcall.status.exitCode":                   {"absent when a signal", "<integer>"},
		"executionenvironment.spec.allowedPaths":     {"/workspace", "<[]string>"},
		"executionpolicy.spec.code.deniedModules":    {"subprocess"},
		"skill.spec.env":                             {"variables"},
		"toolcall.status.streams.stdout.sha256":      {"sha256"},
		"executionenvironment.spec.resources.limits": {"compute resources"},
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			said, err := s.kubectl(t, "explain", field)
			must(t, err)
			for _, want := range wants {
				if !strings.Contains(strings.Join(strings.Fields(said), " "), strings.Join(strings.Fields(want), " ")) {
					t.Errorf("kubectl explain %s lacks %q:\n%s", field, want, said)
				}
			}
		})
	}
}

// A call that didn't go well has an Event; of one that did, the status says it all.
func TestEventsTellWhatWentWrong(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	cancelled := shell("echo never")
	cancelled.Cancel = true
	for name, test := range map[string]struct {
		spec         v1alpha1.ToolCallSpec
		reason, kind string
	}{
		"a failure":          {shell("exit 1"), v1alpha1.ReasonNonZeroExit, "Warning"},
		"one before a start": {in("nowhere", shell("true")), v1alpha1.ReasonEnvironmentNotFound, "Warning"},
		"a cancellation":     {cancelled, v1alpha1.ReasonCancelRequested, "Normal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, test.spec)
			event := sp.awaitEvent(t, call, test.reason, call.Status.Message)
			if event.Type != test.kind || event.ReportingController != "toolcall.dev/operator" {
				t.Errorf("the Event is %s by %s", event.Type, event.ReportingController)
			}
		})
	}
}

// cell is how a table shows a number that may be unknown.
