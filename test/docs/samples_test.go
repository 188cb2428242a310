package docs

import (
	"fmt"
	"image/png"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

// want is how a call of a sample must end.
type want struct {
	phase  v1alpha1.Phase
	reason string
	// stdout is all that it prints.
	stdout string
}

func prints(stdout string) want {
	return want{v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, stdout}
}

func deniedFor(reason string) want { return want{phase: v1alpha1.PhaseDenied, reason: reason} }

// sample is a file of config/samples as a person applies it.
type sample struct {
	namespace string
	// set replaces what the file tells people to replace.
	set []string
	// prepare makes what the sample expects of a cluster, and may say more to replace.
	prepare func(t *testing.T, namespace string) (set []string)
	calls   map[string]want
	// more is tried when the calls have ended.
	more func(t *testing.T, namespace string)
}

var samples = map[string]sample{
	"python-data.yaml": {
		namespace: "toolcall-python-data", set: []string{"registry.example.com/python-data:1", toolImage},
		calls: map[string]want{"mean": prints("Lima 19.5\nOslo 4.0\n")},
	},
	"repository.yaml": {
		namespace: "toolcall-repository", prepare: serveRepository,
		calls: map[string]want{"clone": prints(""), "history": prints("")},
		more:  sharedCheckout,
	},
	"no-network.yaml": {
		namespace: "toolcall-no-network",
		calls: map[string]want{
			"asks":   deniedFor(v1alpha1.ReasonNetworkNotAllowed),
			"wants":  deniedFor(v1alpha1.ReasonNetworkNotAllowed),
			"sneaks": prints("refused: Permission denied\n"),
		},
	},
	"gvisor.yaml": {
		// The local node has no gVisor: its own runtime stands in under the class, so that what is tested is
		// that the class reaches the pod and is used.
		namespace: "toolcall-gvisor", set: []string{"handler: runsc", "handler: runc"},
		calls: map[string]want{"kernel": {phase: v1alpha1.PhaseSucceeded, reason: v1alpha1.ReasonCompleted}},
		more:  underItsClass,
	},
	"coding-agent.yaml": {
		namespace: "toolcall-coding-agent",
		calls: map[string]want{
			"works":       prints("42\ntest: 42\n"),
			"names-curl":  deniedFor(v1alpha1.ReasonShellCommandNotAllowed),
			"starts-curl": {phase: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonNonZeroExit},
		},
		more: curlIsRefused,
	},
	"two-agents.yaml": {namespace: "toolcall-agents", more: eachWithItsTools},
	"warm.yaml":       {namespace: "toolcall-warm", more: warmAndBounded},
	"budget.yaml":     {namespace: "toolcall-budget", more: oneCallAtATime},
	"session-workspace.yaml": {
		namespace: "toolcall-workspace", more: sharedAndKept,
		calls: map[string]want{"write": prints(""), "read": prints("remember\n")},
	},
	"files.yaml": {
		namespace: "toolcall-files",
		calls: map[string]want{
			"write": prints(""), "edit": prints(""), "read": prints("    print(\"Good morning,\", name)\n"),
			"search": prints(`{"path":"src/greet.py","lineNumber":1,"column":1,"line":"def greet(name):"}` + "\n"),
			"denied": {phase: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonPathNotAllowed},
		},
	},
	"artifacts.yaml": {
		namespace: "toolcall-artifacts", more: isAPlot,
		calls: map[string]want{"plot": prints("")},
	},
	"afternoon.yaml": {namespace: "toolcall-afternoon", more: showsTheRepository},
}

func TestSamples(t *testing.T) {
	full.Only(t, "the samples run on a cluster; test/api has the API server take each")
	needCluster(t)
	for file, s := range samples {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			set := s.set
			if s.prepare != nil {
				set = append(set, s.prepare(t, s.namespace)...)
			}
			manifest := strings.NewReplacer(set...).Replace(read(t, "config/samples/"+file))
			apply(t, manifest)
			for name, want := range s.calls {
				expectEnd(t, finished(t, s.namespace, name), want)
			}
			if s.more != nil {
				s.more(t, s.namespace)
			}
		})
	}
}

func expectEnd(t *testing.T, call *v1alpha1.ToolCall, want want) {
	t.Helper()
	got := call.Status
	if got.Phase != want.phase || got.Reason != want.reason || (want.stdout != "" && got.Stdout != want.stdout) {
		t.Errorf("call %s ended %s/%s with %q, want %s/%s with %q: %s\n%s", call.Name,
			got.Phase, got.Reason, got.Stdout, want.phase, want.reason, want.stdout, got.Message, got.Stderr)
	}
}

// Every file beside the demo's is tested, and no test is about a file that is gone.
func TestEverySampleIsTested(t *testing.T) {
	t.Parallel()
	demo := read(t, "config/samples/kustomization.yaml")
	paths, err := filepath.Glob(filepath.Join(root, "config/samples/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, path := range paths {
		name := filepath.Base(path)
		if name == "kustomization.yaml" || strings.Contains(demo, "- "+name+"\n") {
			continue
		}
		files = append(files, name)
		if _, ok := samples[name]; !ok {
			t.Errorf("config/samples/%s has no test: add it to samples", name)
		}
	}
	for name, s := range samples {
		if !slices.Contains(files, name) {
			t.Errorf("config/samples/%s is gone", name)
			continue
		}
		for i := 0; i < len(s.set); i += 2 {
			if !strings.Contains(read(t, "config/samples/"+name), s.set[i]) {
				t.Errorf("config/samples/%s no longer holds %q", name, s.set[i])
			}
		}
	}
}

// serveRepository makes a volume, for the local cluster provisions none, and serves a repository with three
// commits from a pod. That is in a namespace of its own: the sample's is made anew afterwards. The environment's
// git finds it under the address that the sample's call has.
func serveRepository(t *testing.T, namespace string) []string {
	// The node has a /run of its own, which goes with it. The folder is new each time: one that a test left behind
	// when it was ended has a checkout in it, and git clones into no such folder.
	folder := strings.TrimSpace(onNode(t, "mktemp", "-d", "/run/toolcall-docs-XXXXXX"))
	t.Cleanup(func() { onNode(t, "rm", "-rf", folder) })
	onNode(t, "chmod", "0777", folder)
	apply(t, fmt.Sprintf(repositoryBed, namespace, folder))
	kubectl("wait", "--for=condition=Ready", "--timeout=60s", "-n", namespace+"-served", "pod/git").must(t)
	pod := &corev1.Pod{}
	get(t, pod, "-n", namespace+"-served", "pod/git")
	const line = "  maxConcurrentCalls: 1\n"
	const host = "      - host: git.example.com\n"
	return []string{
		line, fmt.Sprintf(instead, pod.Status.PodIP) + line,
		host, fmt.Sprintf("      - {host: %s, ports: [9418]}\n", pod.Status.PodIP),
	}
}

// onNode runs a command within the namespaces of the local node, and gives what it printed.
func onNode(t *testing.T, args ...string) string {
	t.Helper()
	return command{args: append([]string{helper(t, "cluster"), "exec", "--"}, args...)}.must(t)
}

const instead = `  env:
    - {name: GIT_CONFIG_COUNT, value: "1"}
    - {name: GIT_CONFIG_KEY_0, value: "url.git://%s/.insteadOf"}
    - {name: GIT_CONFIG_VALUE_0, value: "https://git.example.com/team/"}
`

const repositoryBed = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-served}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s-workspace}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: %[1]s, name: workspace}
  hostPath: {path: %[2]s, type: Directory}
---
apiVersion: v1
kind: Pod
metadata: {name: git, namespace: %[1]s-served}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: git
    image: toolcall.dev/tools:dev
    imagePullPolicy: IfNotPresent
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    readinessProbe: {tcpSocket: {port: 9418}, periodSeconds: 1}
    command:
    - bash
    - -ec
    - |
      mkdir -p /tmp/served && git init --quiet --initial-branch=main /tmp/work && cd /tmp/work
      for number in one two three; do
        git -c user.name=Author -c user.email=author@example.com commit --quiet --allow-empty --message "$number"
      done
      git clone --quiet --bare /tmp/work /tmp/served/project.git
      exec git daemon --export-all --base-path=/tmp/served
`

// sharedCheckout: the second call saw, in another pod, what the first had cloned.
func sharedCheckout(t *testing.T, namespace string) {
	clone, history := finished(t, namespace, "clone"), finished(t, namespace, "history")
	var subjects []string
	for line := range strings.Lines(history.Status.Stdout) {
		_, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		subjects = append(subjects, subject)
	}
	if strings.Join(subjects, " ") != "three two one" {
		t.Errorf("the history is %q", history.Status.Stdout)
	}
	if clone.Status.Pod == history.Status.Pod {
		t.Errorf("both calls ran in pod %s", clone.Status.Pod)
	}
	if history.Status.StartTime.Before(clone.Status.CompletionTime) {
		t.Error("the second call started before the first had ended")
	}
}

func isAPlot(t *testing.T, namespace string) {
	path := "/apis/subresources.toolcall.dev/v1alpha1/namespaces/" + namespace + "/toolcalls/plot/log?artifact=wave.png"
	plot, err := png.DecodeConfig(strings.NewReader(kubectl("get", "--raw", path).must(t)))
	if err != nil || plot.Width != 320 || plot.Height != 160 {
		t.Errorf("the plot has %d x %d pixels: %v", plot.Width, plot.Height, err)
	}
}

func underItsClass(t *testing.T, namespace string) {
	call := finished(t, namespace, "kernel")
	pod := &corev1.Pod{}
	get(t, pod, "-n", namespace, "pod/"+call.Status.Pod)
	if class := pod.Spec.RuntimeClassName; class == nil || *class != "toolcall-gvisor" {
		t.Errorf("pod %s has no runtimeClassName toolcall-gvisor", pod.Name)
	}
	if !strings.HasPrefix(call.Status.Stdout, "Linux version ") {
		t.Errorf("the call printed %q", call.Status.Stdout)
	}
}

// curlIsRefused: the status says which program it was, and what its policy would have to list.
func curlIsRefused(t *testing.T, namespace string) {
	call := finished(t, namespace, "starts-curl")
	refused := call.Status.Refused
	if len(refused) != 1 || refused[0].Path != "/usr/bin/curl" || refused[0].Rule != "NotListed" {
		t.Errorf("refused is %+v", refused)
	}
	const want = `"/usr/bin/curl" was not allowed to run: add it to binaries.allowed of policy "coding-agent".`
	if !strings.HasSuffix(call.Status.Message, want) || !strings.Contains(call.Status.Output, want+"\n\nTook ") {
		t.Errorf("the message is %q, the output %q", call.Status.Message, call.Status.Output)
	}
	if i := call.Status.Isolation; i == nil || !i.Programs || !i.Writes {
		t.Errorf("isolation is %+v", i)
	}
}

func eachWithItsTools(t *testing.T, namespace string) {
	const list, line = "{structured: {binary: ls, args: [/]}}", "{shell: {command: echo built}}"
	for name, test := range map[string]struct {
		agent, spec string
		want        want
	}{
		"reviewer-lists": {"reviewer", list, want{phase: v1alpha1.PhaseSucceeded, reason: v1alpha1.ReasonCompleted}},
		"reviewer-shell": {"reviewer", line, deniedFor(v1alpha1.ReasonAgentNotAllowed)},
		"builder-shell":  {"builder", line, prints("built\n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := "system:serviceaccount:" + namespace + ":" + test.agent
			awaitRight(t, user, "create", "toolcalls.toolcall.dev", "-n", namespace)
			awaitRight(t, user, "use", "tools.toolcall.dev/ls", "-n", namespace)
			kubectl("create", "--as="+user, "-f", "-").with(callManifest(namespace, name, test.spec)).must(t)
			call := finished(t, namespace, name)
			expectEnd(t, call, test.want)
			if call.Spec.RequestedBy == nil || call.Spec.RequestedBy.Username != user {
				t.Errorf("the call is said to be requested by %v", call.Spec.RequestedBy)
			}
		})
	}
}

func callManifest(namespace, name, spec string) string {
	return fmt.Sprintf("{apiVersion: toolcall.dev/v1alpha1, kind: ToolCall, metadata: {name: %s, namespace: %s}, spec: %s}\n", name, namespace, spec)
}

// warmAndBounded: a call takes a pod that waited, and of more than four no more than four run.
func warmAndBounded(t *testing.T, namespace string) {
	kubectl("wait", "--for=jsonpath={.status.warm.ready}=2", "--timeout=90s", "-n", namespace, "execenv/warm").must(t)
	kubectl("create", "-f", "-").with(callManifest(namespace, "first", "{shell: {command: echo warm}}")).must(t)
	first := finished(t, namespace, "first")
	expectEnd(t, first, prints("warm\n"))
	if first.Status.Timings.Path != v1alpha1.PathWarm {
		t.Errorf("the call took the path %s", first.Status.Timings.Path)
	}
	var many []string
	for i := range 7 {
		many = append(many, callManifest(namespace, fmt.Sprintf("many-%d", i), "{shell: {command: sleep 2}}"))
	}
	kubectl("create", "-f", "-").with(strings.Join(many, "---\n")).must(t)
	var calls []*v1alpha1.ToolCall
	for i := range many {
		call := finished(t, namespace, fmt.Sprintf("many-%d", i))
		expectEnd(t, call, want{phase: v1alpha1.PhaseSucceeded, reason: v1alpha1.ReasonCompleted})
		calls = append(calls, call)
	}
	if most := atOnce(calls); most < 2 || most > 4 {
		t.Errorf("%d calls ran at the same time", most)
	}
}

// oneCallAtATime: the agent's calls wait for each other, and somebody else's waits for none of them.
func oneCallAtATime(t *testing.T, namespace string) {
	agent := "system:serviceaccount:" + namespace + ":agent"
	awaitRight(t, agent, "create", "toolcalls.toolcall.dev", "-n", namespace)
	awaitRight(t, agent, "use", "tools.toolcall.dev/bash", "-n", namespace)
	names := []string{"agent-0", "agent-1", "agent-2"}
	for _, name := range names {
		kubectl("create", "--as="+agent, "-f", "-").with(callManifest(namespace, name, "{shell: {command: sleep 5}}")).must(t)
	}
	kubectl("create", "-f", "-").with(callManifest(namespace, "other", "{shell: {command: echo other}}")).must(t)
	other := finished(t, namespace, "other")
	expectEnd(t, other, prints("other\n"))
	var calls []*v1alpha1.ToolCall
	for _, name := range names {
		call := finished(t, namespace, name)
		expectEnd(t, call, want{phase: v1alpha1.PhaseSucceeded, reason: v1alpha1.ReasonCompleted})
		calls = append(calls, call)
	}
	if most := atOnce(calls); most != 1 {
		t.Errorf("%d calls of the agent ran at the same time", most)
	}
	isBefore := func(c *v1alpha1.ToolCall) bool { return other.Status.CompletionTime.Before(c.Status.CompletionTime) }
	if !slices.ContainsFunc(calls, isBefore) {
		t.Error("somebody else's call waited for all of the agent's")
	}
}

// atOnce is the largest number of calls whose processes ran at one moment.
func atOnce(calls []*v1alpha1.ToolCall) int {
	most := 0
	for _, at := range calls {
		running := 0
		for _, other := range calls {
			if !other.Status.StartTime.After(at.Status.StartTime.Time) && other.Status.CompletionTime.After(at.Status.StartTime.Time) {
				running++
			}
		}
		most = max(most, running)
	}
	return most
}
