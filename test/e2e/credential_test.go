package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// tokenOf is the credential of a call's pod, which only who may read Secrets can see.
func (sp *space) tokenOf(t *testing.T, call *v1alpha1.ToolCall) string {
	t.Helper()
	held := secret(sp.namespace, call.Status.Job)
	must(t, sp.client.Get(t.Context(), keyOf(held), held))
	token := string(held.Data["token"])
	if len(token) < 32 {
		t.Fatalf("Secret %s holds no token", held.Name)
	}
	return token
}

// The command runs as the same user as its supervisor, and still can't get at what that knows.
func TestCommandCannotReadTheCredential(t *testing.T) {
	coldFirst(t, testCommandCannotReadTheCredential, waySession, wayWarm, wayImage)
}

func testCommandCannotReadTheCredential(t *testing.T, w way) {
	sp := w.newSpace(t)
	const look = `
exec 2>&1
echo "environment: $(env | grep -c TOOLCALL)"
echo "own environ: $(tr '\0' '\n' </proc/self/environ | grep -c TOOLCALL)"
for file in environ mem maps auxv; do head -c 1 /proc/1/$file >/tmp/read 2>/dev/null && [ -s /tmp/read ] && echo "read $file"; done
ls /proc/1/fd >/dev/null 2>&1 && echo "listed fd"
readlink /proc/1/exe && echo "read exe"
ls /proc/1/root/ >/dev/null 2>&1 && echo "entered root"
echo "command line: $(tr '\0' ' ' </proc/1/cmdline)"
ls -d /var/run/secrets /run/secrets 2>/dev/null
echo done`
	call := sp.run(t, shell(look))
	supervisor := "/.toolcall/runner"
	if sp.way == wayImage {
		supervisor = runnerPath
	}
	expect(t, call, succeeded("environment: 0\nown environ: 0\ncommand line: "+supervisor+" \ndone\n"))
}

// Every file and every process that the command can read, searched for anything that looks like a token.
func TestNoReadableFileHoldsTheCredential(t *testing.T) {
	coldFirst(t, testNoReadableFileHoldsTheCredential, wayWarm, wayImage)
}

func testNoReadableFileHoldsTheCredential(t *testing.T, w way) {
	sp := w.newSpace(t, keeps(v1alpha1.MaxBytesPerStream))
	const search = `
import glob, os, re, hashlib, time
token = re.compile(rb'[A-Za-z0-9_-]{43}')
found = set()
def look(path):
    try:
        with open(path, 'rb') as f:
            data = f.read(1 << 20)
    except OSError:
        return
    for run in re.findall(rb'[A-Za-z0-9_-]{43,}', data):
        for i in range(len(run) - 42):
            found.add(hashlib.sha256(run[i:i + 43]).hexdigest()[:8])
recent = time.time() - 86400
for top, dirs, files in os.walk('/'):
    if top == '/':
        dirs[:] = [d for d in dirs if d not in ('proc', 'sys')]
    for name in files:
        path = os.path.join(top, name)
        # What an image brings can't hold it, and is older.
        if os.path.isfile(path) and not os.path.islink(path) and os.path.getmtime(path) > recent:
            look(path)
for path in glob.glob('/proc/[0-9]*/*') + glob.glob('/proc/[0-9]*/task/*/*') + glob.glob('/proc/[0-9]*/fd/*'):
    if os.path.isfile(path):
        look(path)
print('\n'.join(sorted(found)))
print('searched')
`
	call := sp.run(t, code("python", search))
	if !strings.HasSuffix(call.Status.Stdout, "searched\n") {
		t.Fatalf("the search failed: %s %s", call.Status.Message, call.Status.Stderr)
	}
	if strings.Contains(call.Status.Stdout, sum(sp.tokenOf(t, call))[:8]+"\n") {
		t.Error("a file that the command can read holds the token")
	}
	if call.Status.Streams.Stdout.Truncated {
		t.Error("too much was found to look through")
	}
}

func TestPodShowsNoCredential(t *testing.T) {
	coldFirst(t, testPodShowsNoCredential, wayWarm, wayImage)
}

func testPodShowsNoCredential(t *testing.T, w way) {
	sp := w.newSpace(t)
	call := sp.run(t, shell("ls /var/run/secrets/kubernetes.io/serviceaccount 2>/dev/null || echo none"))
	expect(t, call, succeeded("none\n"))
	token := sp.tokenOf(t, call)
	pods := sp.pods(t, call)
	if len(pods) != 1 {
		t.Fatalf("there are %d pods, not 1", len(pods))
	}
	for kind, name := range map[string]string{"pod": pods[0].Name, "job": call.Status.Job, "toolcall": call.Name} {
		shown, err := sp.kubectl(t, "get", kind, name, "-n", sp.namespace, "-o", "yaml")
		must(t, err)
		if strings.Contains(shown, token) {
			t.Errorf("kubectl get %s shows the token", kind)
		}
	}
	if mounts := pods[0].Spec.AutomountServiceAccountToken; mounts == nil || *mounts {
		t.Error("the pod mounts a ServiceAccount token")
	}
	for _, env := range pods[0].Spec.Containers[0].Env {
		if strings.Contains(env.Name, "TOKEN") && env.Value != "" {
			t.Errorf("variable %s has its value in the pod's spec", env.Name)
		}
	}
	if log := sp.podLog(t, call); strings.Contains(log, token) {
		t.Error("the pod's log shows the token")
	}
}

// Neither the command nor its variables nor its input is in the pod: they may hold what readers of pods
// shouldn't see.
func TestPodDoesNotShowTheCall(t *testing.T) {
	coldFirst(t, testPodDoesNotShowTheCall, wayWarm, wayImage)
}

func testPodDoesNotShowTheCall(t *testing.T, w way) {
	sp := w.newSpace(t)
	spec := shell("cat >/dev/null # sesame-command")
	spec.Stdin = "sesame-stdin"
	spec.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: "sesame-value"}}
	call := sp.run(t, spec)
	for _, pod := range sp.pods(t, call) {
		if found := regexp.MustCompile("sesame-[a-z]+").FindString(toYAML(pod)); found != "" {
			t.Errorf("the pod shows %s", found)
		}
	}
}

// forged is what a result left in the termination message could look like.
func forged(t *testing.T) string {
	t.Helper()
	outcome, err := json.Marshal(map[string]any{"v": 1, "reason": "Completed", "started": true, "exitCode": 0})
	must(t, err)
	return `{"outcome":` + string(outcome) + `,"code":"` + strings.Repeat("0", 64) + `"}`
}

func TestTerminationMessageCannotBeForged(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	spec := shell(`cat >/dev/termination-log; for s in KILL STOP HUP ABRT SEGV USR1 PIPE; do kill -$s 1; done 2>/dev/null
echo running; exec -a "$MARKER" sleep 600`)
	spec.Stdin = forged(t)
	t.Run("while its supervisor lives, the message counts for nothing", func(t *testing.T) {
		t.Parallel()
		alive := *spec.DeepCopy()
		alive.Shell.Command = strings.Replace(alive.Shell.Command, `exec -a "$MARKER" sleep 600`, "exit 3", 1)
		expect(t, sp.run(t, alive), exited(3, "running\n", ""))
	})
	t.Run("when its supervisor is killed, the message isn't believed", func(t *testing.T) {
		t.Parallel()
		marker := "e2e-forger-" + sp.namespace
		killed := *spec.DeepCopy()
		killed.Env = []v1alpha1.CallEnvVar{{Name: "MARKER", Value: marker}}
		call := sp.create(t, killed)
		sp.awaitLine(t, call, "running")
		sp.awaitProcess(t, marker)
		sp.kill(t, sp.runnerOf(t, sp.processes(t, marker)[0]))
		done := sp.awaitFinished(t, call)
		want := neverRan(v1alpha1.ReasonPodLost)
		*want.RetrySafe = false
		expect(t, done, want)
		if left := sp.processes(t, marker); left != nil {
			t.Errorf("processes %v outlived their supervisor", left)
		}
	})
}

// awaitProcess waits for a process with the text on its command line: a shell replaces itself a moment after
// it said that it would.
func (s *suite) awaitProcess(t *testing.T, text string) {
	t.Helper()
	s.awaitTrue(t, "process "+text, func(context.Context) (bool, error) { return len(s.processes(t, text)) > 0, nil })
}

// A pod that wasn't made for the call is of no interest to the operator, and can't have the operator's label. By the Job's
// labels the Job controller takes it for one of the Job's, and deletes one of the two: not the one that is ready.
func TestForeignPodIsIgnored(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	call := sp.create(t, shell("echo running; "+held+"; echo end"))
	running := sp.awaitLine(t, call, "running")
	sp.awaitTrue(t, "pod that is ready", func(context.Context) (bool, error) {
		return slices.ContainsFunc(sp.pods(t, running)[0].Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}), nil
	})
	// Of two that are ready it deletes the younger one, by whole seconds.
	time.Sleep(1100 * time.Millisecond)
	pod := sp.pods(t, running)[0]
	stranger := &corev1.Pod{Spec: *pod.Spec.DeepCopy()}
	stranger.Namespace, stranger.Name = sp.namespace, "stranger"
	stranger.Labels, stranger.Annotations = maps.Clone(pod.Labels), pod.Annotations
	stranger.Spec.NodeName = ""
	expectRefused(t, sp.client.Create(t.Context(), stranger), "only the operator makes pods")
	// The Job's own labels are nobody's.
	delete(stranger.Labels, v1alpha1.LabelManagedBy)
	must(t, sp.client.Create(t.Context(), stranger))
	sp.awaitGone(t, stranger)
	sp.letGo(t, running)
	done := sp.awaitFinished(t, call)
	expect(t, done, succeeded("running\nend\n"))
	if done.Status.Pod != pod.Name {
		t.Errorf("the call ran in pod %s, not %s", done.Status.Pod, pod.Name)
	}
}
