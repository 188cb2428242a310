package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// sharedAndKept: who may use the session works in it, who may not is denied, and the files outlive the session's pod.
func sharedAndKept(t *testing.T, namespace string) {
	const spec = "{sessionRef: {name: notes}, shell: {command: cat note}}"
	accounts := "system:serviceaccount:" + namespace + ":"
	awaitRight(t, accounts+"reviewer", "use", "toolsessions.toolcall.dev/notes", "-n", namespace)
	for name, test := range map[string]struct {
		account string
		want    want
	}{
		"by-reviewer": {"reviewer", prints("remember\n")},
		"by-writer":   {"writer", deniedFor(v1alpha1.ReasonSessionNotAllowed)},
	} {
		user := accounts + test.account
		awaitRight(t, user, "create", "toolcalls.toolcall.dev", "-n", namespace)
		awaitRight(t, user, "use", "tools.toolcall.dev/bash", "-n", namespace)
		kubectl("create", "--as="+user, "-f", "-").with(callManifest(namespace, name, spec)).must(t)
		expectEnd(t, finished(t, namespace, name), test.want)
	}
	suspend(t, namespace, "notes", "true")
	kubectl("wait", "--for=jsonpath={.status.phase}=Suspended", "--timeout=60s", "-n", namespace, "tsn/notes").must(t)
	kubectl("create", "-f", "-").with(callManifest(namespace, "later", spec)).must(t)
	kubectl("wait", `--for=jsonpath={.status.conditions[?(@.type=="Started")].reason}=SessionSuspended`, "--timeout=60s", "-n", namespace, "tc/later").must(t)
	suspend(t, namespace, "notes", "false")
	later := finished(t, namespace, "later")
	expectEnd(t, later, prints("remember\n"))
	if in := later.Status.Session; in == nil || in.Incarnation != 2 || later.Status.Pod == finished(t, namespace, "read").Status.Pod {
		t.Errorf("after the suspension the call ran in %s: %+v", later.Status.Pod, in)
	}
}

func suspend(t *testing.T, namespace, session, value string) {
	t.Helper()
	kubectl("patch", "tsn/"+session, "-n", namespace, "--type=merge", "-p", `{"spec":{"suspend":`+value+`}}`).must(t)
}

// showsTheRepository: the environment of the tutorial shows what is in the ConfigMap.
func showsTheRepository(t *testing.T, namespace string) {
	kubectl("create", "configmap", "repository", "-n", namespace, "--from-literal=project.bundle=shown").must(t)
	kubectl("create", "-f", "-").with(callManifest(namespace, "shows", "{shell: {command: cat /repository/project.bundle}}")).must(t)
	expectEnd(t, finished(t, namespace, "shows"), prints("shown"))
}

var (
	ofSession = regexp.MustCompile(`(?m)^kind: ToolSession\nmetadata:\n {2}name: (\S+)$`)
	inSession = regexp.MustCompile(`(?m)^ {2}sessionRef:\n {4}name: (\S+)$`)
)

// A call whose session isn't there fails, so samples make sessions first, and kustomize keeps their order.
func TestSamplesMakeSessionsBeforeTheirCalls(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(root, "config/samples/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range paths {
		var made []string
		for document := range strings.SplitSeq(read(t, "config/samples/"+filepath.Base(path)), "\n---\n") {
			if m := ofSession.FindStringSubmatch(document); m != nil {
				made = append(made, m[1])
			}
			if m := inSession.FindStringSubmatch(document); m != nil {
				found++
				if !slices.Contains(made, m[1]) {
					t.Errorf("%s has a call in session %s before the session", path, m[1])
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("found %d calls in sessions only", found)
	}
	if !strings.Contains(read(t, "config/samples/kustomization.yaml"), "\nsortOptions:\n  order: fifo\n") {
		t.Error("kustomize sorts the samples, calls before sessions")
	}
}
