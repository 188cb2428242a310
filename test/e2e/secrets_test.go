package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// showsSecrets lets calls of a policy print the values of Secrets, and code use any module.
func showsSecrets(p *v1alpha1.ExecutionPolicySpec) {
	p.Code = &v1alpha1.CodePolicy{DeniedModules: []string{}}
	p.Output = &v1alpha1.OutputPolicy{Redaction: v1alpha1.RedactOff}
}

// forTools is a key of the Secret "tokens" for calls of some tools.
func forTools(name, key string, as v1alpha1.SecretForm, tools ...string) v1alpha1.ToolSecret {
	return v1alpha1.ToolSecret{Name: name, As: as, Tools: tools, SecretKeyRef: corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "tokens"}, Key: key,
	}}
}

const (
	tokenValue = "glpat-Zr4hK9/w+2Qx=="
	keyValue   = "-----BEGIN KEY-----\nAAAAB3NzaC1yc2E\n-----END KEY-----\n"
)

// newTokens makes the Secret "tokens", and an environment whose calls of bash get one of its values as a variable, and those of
// cat another one as a file.
func (sp *space) newTokens(t *testing.T, adjust ...func(*v1alpha1.ExecutionEnvironment)) {
	t.Helper()
	must(t, sp.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: "tokens"},
		StringData: map[string]string{"token": tokenValue, "key": keyValue},
	}))
	secrets := func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Secrets = []v1alpha1.ToolSecret{forTools("TOKEN", "token", v1alpha1.SecretAsEnv, "bash"), forTools("KEY", "key", v1alpha1.SecretAsFile, "bash", "env")}
	}
	sp.newEnvironment(t, "tokens", append(adjust, secrets)...)
}

func TestSecretsReachCallsOfTheirToolsAlone(t *testing.T) {
	everyWay(t, testSecretsReachCallsOfTheirToolsAlone)
}

func testSecretsReachCallsOfTheirToolsAlone(t *testing.T, w way) {
	sp := w.newSpace(t, showsSecrets)
	sp.newTokens(t)
	given := sp.run(t, in("tokens", shell(`echo "$TOKEN"; cat "$KEY"; stat -c %a "$KEY"; echo "$KEY" >&2`)))
	if given.Status.Stdout != tokenValue+"\n"+keyValue+"400\n" || len(given.Status.Redactions) > 0 {
		t.Errorf("bash got %q, %+v", given.Status.Stdout, given.Status)
	}
	other := environ(t, sp.run(t, in("tokens", structured("env", "-0"))))
	if _, has := other["TOKEN"]; has || other["KEY"] == "" {
		t.Errorf("env got %v", other)
	}
	python := sp.run(t, in("tokens", code("python", "print(open('/proc/self/environ').read())")))
	if strings.Contains(python.Status.Stdout, "TOKEN=") || strings.Contains(python.Status.Stdout, "KEY=") {
		t.Errorf("python got %q", python.Status.Stdout)
	}
}

// lookForSecrets looks for the variables of a process that runs, whose PID and file it reads, in all of /proc, and for the file.
const lookForSecrets = `import glob
pid, key = open("/workspace/where").read().split()
def look(path):
    try:
        text = open(path, "rb").read()
    except OSError as error:
        return type(error).__name__
    return "found" if b"` + tokenValue + `" in text or b"BEGIN KEY" in text else "nothing"
everywhere = [path for path in glob.glob("/proc/[0-9]*/environ") if look(path) == "found"]
print(look("/proc/" + pid + "/environ"), everywhere, look(key))`

// One session, one pod: what a tool isn't given it doesn't find either, while a call runs that has it.
func TestSecretsOfASessionGoByTool(t *testing.T) {
	coldFirst(t, testSecretsOfASessionGoByTool, wayWarm)
}

func testSecretsOfASessionGoByTool(t *testing.T, w way) {
	withoutTemporary := func(p *v1alpha1.ExecutionPolicySpec) {
		p.Files = &v1alpha1.FilesPolicy{ReadPaths: []string{"/workspace"}, WritePaths: []string{"/workspace"}}
	}
	for name, tc := range map[string]struct {
		policy []func(*v1alpha1.ExecutionPolicySpec)
		want   string
	}{
		// The file is in a directory that both may read.
		"under a policy without paths":        {[]func(*v1alpha1.ExecutionPolicySpec){showsSecrets}, "PermissionError [] found\n"},
		"under a policy that leaves out /tmp": {[]func(*v1alpha1.ExecutionPolicySpec){showsSecrets, withoutTemporary}, "PermissionError [] PermissionError\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sp := w.newSpace(t, tc.policy...)
			sp.newTokens(t)
			session := sp.startSession(t, "tools", sessionIn("tokens"))
			// It sees its own variables where the other looks for them.
			holder := sp.create(t, inside(session, inBackground(shell(`tr '\0' '\n' < /proc/$$/environ | grep ^TOKEN=; cat "$KEY"
echo "$$ $KEY" > /workspace/where; echo ready; sleep 600`))))
			sp.awaitLine(t, holder, "TOKEN="+tokenValue)
			sp.awaitLine(t, holder, "ready")
			expect(t, sp.run(t, inside(session, code("python", lookForSecrets))), succeeded(tc.want))
			reads := file(v1alpha1.FileGlob, "/tmp", pattern(".toolcall-files/**"))
			if found := sp.run(t, inside(session, reads)); found.Status.Stdout != "" {
				t.Errorf("a file action finds %q", found.Status.Stdout)
			}
		})
	}
}

// A new value is that of the calls whose pods start after it; a session keeps the one that its pod began with. Each is redacted
// where a call has it, and only there.
func TestASecretThatChanges(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.newTokens(t)
	session := sp.startSession(t, "before", sessionIn("tokens"))
	const newValue = "glpat-a-new-one-01234"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: "tokens"}}
	must(t, sp.client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	secret.StringData = map[string]string{"token": newValue}
	must(t, sp.client.Update(t.Context(), secret))
	// Each says which value it has without printing it whole, and then prints both.
	both := func(spec v1alpha1.ToolCallSpec) string {
		call := sp.run(t, spec)
		expectSame(t, "phase", v1alpha1.PhaseSucceeded, call.Status.Phase)
		return call.Status.Stdout
	}
	show := shell(`echo ${#TOKEN}; echo "$TOKEN"; for v in old:` + tokenValue + ` new:` + newValue + `; do echo $v; done`)
	if got, want := both(inside(session, show)), "20\n[redacted: TOKEN]\nold:[redacted: TOKEN]\nnew:"+newValue+"\n"; got != want {
		t.Errorf("the session's call printed %q, want %q", got, want)
	}
	if got, want := both(in("tokens", show)), "21\n[redacted: TOKEN]\nold:"+tokenValue+"\nnew:[redacted: TOKEN]\n"; got != want {
		t.Errorf("a new pod's call printed %q, want %q", got, want)
	}
}

func TestValuesOfSecretsAreRedacted(t *testing.T) {
	coldFirst(t, testValuesOfSecretsAreRedacted, waySession)
}

func testValuesOfSecretsAreRedacted(t *testing.T, w way) {
	sp := w.newSpace(t)
	sp.newTokens(t)
	const mark = "[redacted: TOKEN]"
	for name, spec := range map[string]v1alpha1.ToolCallSpec{
		"as it stands": shell(`echo "$TOKEN"`),
		"in pieces":    shell(`printf %s "${TOKEN:0:5}"; sleep 0.2; echo "${TOKEN:5}"`),
		"as base64":    shell(`printf %s "$TOKEN" | base64`),
		"as hex":       shell(`printf %s "$TOKEN" | od -An -tx1 -v | tr -d ' \n'; echo`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, in("tokens", spec))
			// The padding of base64 has no bits of the value.
			if strings.TrimRight(call.Status.Stdout, "=\n") != mark || strings.Contains(call.Status.Output, tokenValue) {
				t.Errorf("got %q", call.Status.Stdout)
			}
			expectSame(t, "redactions", []v1alpha1.Redaction{{Name: "TOKEN", Stream: v1alpha1.RedactedStdout, Count: 1}}, call.Status.Redactions)
		})
	}
	t.Run("in the pod's log and in what is kept", func(t *testing.T) {
		t.Parallel()
		call := sp.create(t, in("tokens", shell(`echo "$TOKEN"; echo "$KEY" >/dev/null; `+held+`; cat "$KEY"`)))
		running := sp.awaitLine(t, call, mark)
		sp.awaitTrue(t, "the mark in the log of "+running.Status.Pod, func(context.Context) (bool, error) {
			log := sp.podLog(t, running)
			if strings.Contains(log, tokenValue) {
				t.Errorf("the pod's log has the value: %q", log)
			}
			return strings.Contains(log, mark), nil
		})
		sp.letGo(t, running)
		done := sp.awaitFinished(t, call)
		expect(t, done, succeeded(mark+"\n[redacted: KEY]\n"))
		if sum := sum(done.Status.Stdout); done.Status.Streams == nil || done.Status.Streams.Stdout.SHA256 != sum {
			t.Errorf("the sum isn't that of what is kept: %+v", done.Status.Streams)
		}
	})
}

func TestFileActionsShowNoValuesOfSecrets(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.newTokens(t)
	run := sp.desk(t, "desk", sessionIn("tokens"))
	// The file itself has the value.
	expect(t, run(shell(`echo "a $TOKEN b" > note; sha256sum < note`)), succeeded(sum("a "+tokenValue+" b\n")+"  -\n"))
	expect(t, run(file(v1alpha1.FileRead, "note")), did("a [redacted: TOKEN] b\n"))
	expect(t, run(file(v1alpha1.FileGrep, "note", pattern("a glpat"))), did(`{"path":"note","lineNumber":1,"column":1,"line":"a [redacted: TOKEN] b"}`+"\n"))
}
