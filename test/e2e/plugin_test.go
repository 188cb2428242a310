package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// A person at a shell sees a command that ran elsewhere end as if it had run here.
func TestPluginRunExitsAsTheCommandDid(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	script := filepath.Join(t.TempDir(), "script.py")
	must(t, os.WriteFile(script, []byte("import math\nprint(math.floor(6.5) * 7)\n"), 0o600))
	for name, c := range map[string]struct {
		stdin   string
		args    []string
		code    int
		out     string
		errPart string
	}{
		"success":                    {"", []string{"--", "echo", "a b", "c"}, 0, "a b c\n", ""},
		"both streams and a code":    {"", []string{"--shell", "echo out; echo err >&2; exit 3"}, 3, "out\n", "err\n"},
		"no newline at the end":      {"", []string{"--", "printf", "x"}, 0, "x", ""},
		"the time limit":             {"", []string{"--timeout", "1s", "--shell", "echo up; sleep 20"}, 124, "up\n", "TimedOut"},
		"a signal":                   {"", []string{"--shell", "kill -SEGV $$"}, 139, "", "SIGSEGV"},
		"no such program":            {"", []string{"--", "no-such-program"}, 127, "", "never started: running it again repeats nothing"},
		"a denial":                   {"", []string{"--code", "python", "-f", "-"}, 126, "", "explain-denial"},
		"no such environment":        {"", []string{"--env", "nowhere", "--", "ls"}, 125, "", "EnvironmentNotFound"},
		"no such directory":          {"", []string{"-w", "/nowhere", "--", "ls"}, 125, "", "WorkingDirNotFound"},
		"a name that the API denies": {"", []string{"--name", "Not_A_Name", "--", "ls"}, 125, "", "the call was refused"},
		"standard input":             {"one two\n", []string{"--stdin", "--", "wc", "-w"}, 0, "2\n", ""},
		"a snippet":                  {"print('hi')", []string{"--code", "python", "-f", "-"}, 0, "hi\n", ""},
		"a snippet in a file":        {"", []string{"--code", "python", "-f", script}, 0, "42\n", ""},
		"variables and a directory":  {"", []string{"-e", "A=b c", "-w", "/tmp", "--shell", `echo "$A"; pwd`}, 0, "b c\n/tmp\n", ""},
		"a model's tool call":        {"", []string{"--tool", "bash", "--arguments", `{"command": "echo tool"}`}, 0, "tool\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "a denial" {
				c.stdin = "import subprocess"
			}
			got := sp.plugin(t, c.stdin, append([]string{"run"}, c.args...)...)
			expectSaid(t, got, c.code, c.out, c.errPart)
			if strings.Contains(got.err, "note:") {
				t.Errorf("a short call is commented on: %s", got.err)
			}
		})
	}
}

// follower runs the plugin with both streams in one pipe, as on a terminal, and gives its lines.
func (sp *space) follower(t *testing.T, args ...string) (lines *bufio.Scanner, signal func(os.Signal), exit func() int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := sp.pluginCommand(t, ctx, args...)
	reader, writer, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { reader.Close() })
	cmd.Stdout, cmd.Stderr = writer, writer
	must(t, cmd.Start())
	writer.Close()
	return bufio.NewScanner(reader), func(s os.Signal) { must(t, cmd.Process.Signal(s)) }, func() int { return exitOf(t, cmd.Wait()) }
}

// nextLine skips what is said about the call's progress.
func nextLine(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "call ") {
			return lines.Text()
		}
	}
	t.Fatalf("no more lines: %v", lines.Err())
	return ""
}

// The command waits for a file that only appears once its output was seen here: output that comes at the end
// would never come.
func TestPluginShowsOutputWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	lines, _, exit := sp.follower(t, "run", "--name", "live", "--shell", "echo first; echo second >&2; while ! test -e /tmp/seen; do sleep 0.1; done; echo last")
	for _, want := range []string{"first", "second"} {
		if got := nextLine(t, lines); got != want {
			t.Errorf("got %q, not %q", got, want)
		}
	}
	call := &v1alpha1.ToolCall{}
	must(t, sp.client.Get(t.Context(), keyOf(&v1alpha1.ToolCall{ObjectMeta: objectMeta(sp.namespace, "live")}), call))
	if call.Status.Phase != v1alpha1.PhaseRunning {
		t.Errorf("the output came when the call was %s", call.Status.Phase)
	}
	if out, err := sp.kubectl(t, "exec", "-n", sp.namespace, call.Status.Pod, "--", "touch", "/tmp/seen"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := nextLine(t, lines); got != "last" {
		t.Errorf("got %q", got)
	}
	if lines.Scan() || exit() != 0 {
		t.Errorf("more than all: %q", lines.Text())
	}
}

func TestPluginInterruptCancelsTheCall(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	lines, signal, exit := sp.follower(t, "run", "--name", "interrupted", "--shell", "trap 'echo asked; exit 5' TERM; echo up; while true; do sleep 0.1; done")
	if got := nextLine(t, lines); got != "up" {
		t.Fatalf("got %q", got)
	}
	signal(syscall.SIGINT)
	var rest []string
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	text := strings.Join(rest, "\n")
	if code := exit(); code != 130 || !strings.Contains(text, "asked") || !strings.Contains(text, "cancelling call interrupted") {
		t.Errorf("exit code %d, %s", code, text)
	}
	call := &v1alpha1.ToolCall{}
	must(t, sp.client.Get(t.Context(), keyOf(&v1alpha1.ToolCall{ObjectMeta: objectMeta(sp.namespace, "interrupted")}), call))
	if call.Status.Phase != v1alpha1.PhaseCancelled {
		t.Errorf("the call is %s", call.Status.Phase)
	}
}

// The second Ctrl-C leaves a call that takes its time to stop; it ends all the same.
func TestPluginSecondInterruptLeaves(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	lines, signal, exit := sp.follower(t, "run", "--name", "left", "--shell", "trap '' TERM; echo up; while true; do sleep 0.1; done")
	if got := nextLine(t, lines); got != "up" {
		t.Fatalf("got %q", got)
	}
	signal(syscall.SIGINT)
	if got := nextLine(t, lines); !strings.Contains(got, "press Ctrl-C again") {
		t.Fatalf("got %q", got)
	}
	began := time.Now()
	signal(syscall.SIGINT)
	if code := exit(); code != 130 || time.Since(began) > 3*time.Second {
		t.Errorf("exit code %d after %s", code, time.Since(began))
	}
	got := sp.plugin(t, "", "wait", "left")
	if got.code != 130 || !strings.HasPrefix(got.out, "left Cancelled CancelRequested") {
		t.Errorf("got %+v", got)
	}
}

func TestPluginDetachLogsWaitAndCancel(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	got := sp.plugin(t, "", "run", "--detach", "--name", "later", "--shell", "echo a; sleep 1; echo b; exit 4")
	expectSaid(t, got, 0, "later\n", "")
	expectSaid(t, sp.plugin(t, "", "run", "--name", "later", "--", "true"), 125, "", "a name runs at most once")
	expectSaid(t, sp.plugin(t, "", "logs", "-f", "later"), 0, "a\nb\n", "")
	expectSaid(t, sp.plugin(t, "", "logs", "later"), 0, "a\nb\n", "")
	if got = sp.plugin(t, "", "wait", "later"); got.code != 4 || !strings.HasPrefix(got.out, "later Failed NonZeroExit exit 4 after 1.") {
		t.Errorf("wait: %+v", got)
	}
	expectSaid(t, sp.plugin(t, "", "run", "--detach", "--name", "long", "--", "sleep", "60"), 0, "long\n", "")
	expectSaid(t, sp.plugin(t, "", "wait", "long", "--timeout", "1s"), 125, "", "has not ended")
	expectSaid(t, sp.plugin(t, "", "cancel", "long", "none"), 1, "long asked to stop\n", `there is no call none in namespace "`+sp.namespace)
	if got = sp.plugin(t, "", "wait", "long", "later"); got.code != 130 {
		t.Errorf("of two calls: %+v", got)
	}
	got = sp.plugin(t, "", "get")
	for _, want := range []string{"later", "NonZeroExit", "4", "long", "CancelRequested", defaultEnv} {
		if !strings.Contains(got.out, want) {
			t.Errorf("get lacks %q: %s", want, got.out)
		}
	}
	if got = sp.plugin(t, "", "get", "--phase", "cancelled", "-o", "name"); got.out != "toolcall.toolcall.dev/long\n" {
		t.Errorf("get --phase: %+v", got)
	}
	got = sp.plugin(t, "", "describe", "later")
	for _, want := range []string{"Failed (NonZeroExit)", "Standard output (4 bytes):\n  a\n  b\n", "Directory:", "Started after:"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("describe lacks %q: %s", want, got.out)
		}
	}
}

// More than the status keeps comes whole, byte for byte, from the pod's log.
func TestPluginRunGivesAllOfALongOutput(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	var want bytes.Buffer
	for i := range 60000 {
		want.WriteString(strconv.Itoa(i+1) + "\n")
	}
	for _, live := range []string{"auto", "always", "never"} {
		t.Run(live, func(t *testing.T) {
			t.Parallel()
			got := sp.plugin(t, "", "run", "--live", live, "--shell", "seq 1 60000")
			sum, wanted := sha256.Sum256([]byte(got.out)), sha256.Sum256(want.Bytes())
			if got.code != 0 || sum != wanted {
				t.Errorf("exit code %d, %d bytes %s, not %d; %s", got.code, len(got.out), hex.EncodeToString(sum[:4]), want.Len(), got.err)
			}
		})
	}
}

// A command of a few milliseconds isn't held up by its log: the plugin adds little to what the call takes.
func TestPluginRunOfAShortCommandWaitsForNoLog(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.plugin(t, "", "run", "--", "true") // Builds the plugin, pulls what has to be pulled.
	best := time.Hour
	for range 5 {
		began := time.Now()
		got := sp.plugin(t, "", "run", "-o", "jsonpath={.status.timings.finishedMilliseconds}", "--", "echo", "x")
		ms, err := strconv.Atoi(got.out)
		must(t, err)
		best = min(best, time.Since(began)-time.Duration(ms)*time.Millisecond)
	}
	t.Logf("the plugin took %s more than the call", best)
	if best > 700*time.Millisecond {
		t.Errorf("the plugin took %s more than the call", best)
	}
}

// What check says is what becomes of the call, for someone with the shipped roles and nothing more.
func TestPluginCheckAgreesWithWhatHappens(t *testing.T) {
	t.Parallel()
	sp := newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: []string{"ls", "cat", "env"}}
		p.Shell = &v1alpha1.ShellPolicy{Enabled: ptr.To(true), Commands: v1alpha1.ShellAllowlisted}
	})
	user := sp.restrictedUser(t)
	for name, args := range map[string][]string{
		"a listed program":                {"--", "ls", "/"},
		"a program that isn't listed":     {"--", "id"},
		"one that may not be used":        {"--", "cat", "/etc/hostname"},
		"a metacharacter":                 {"--", "ls", "$HOME"},
		"a shell line":                    {"--shell", "ls | ls"},
		"a shell line of something else":  {"--shell", "ls | id"},
		"code":                            {"--code", "python", "-f", "-"},
		"a protected variable":            {"-e", "PATH=/tmp", "--", "ls"},
		"a variable":                      {"-e", "FOO=bar", "--", "ls"},
		"an environment that isn't there": {"--env", "nowhere", "--", "ls"},
		"a skill that isn't there":        {"--skill", "none", "--", "ls"},
		"a tool that nobody knows":        {"--tool", "teleport"},
		"trust":                           {"--trusted", "--", "ls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			as := append([]string{"--as", user}, args...)
			checked := sp.plugin(t, "print(1)", append([]string{"check"}, as...)...)
			ran := sp.plugin(t, "print(1)", append([]string{"run"}, as...)...)
			if checked.code != ran.code {
				t.Errorf("check exits %d, run %d\n%s%s\n%s%s", checked.code, ran.code, checked.out, checked.err, ran.out, ran.err)
			}
			if _, reason, ok := strings.Cut(ran.err, "("); ok && ran.code == 126 {
				reason, _, _ = strings.Cut(reason, ")")
				if !strings.Contains(checked.out, reason) {
					t.Errorf("check doesn't say %s: %s", reason, checked.out)
				}
			}
		})
	}
}

// restrictedUser has toolcall-user in the namespace, may read policies, and may use some tools.
func (sp *space) restrictedUser(t *testing.T) string {
	t.Helper()
	user := "plugin-" + sp.namespace
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
	sp.letCreate(t, subject)
	sp.allow(t, "plugin-tools", subject, use("ls", "id", "env", "bash"))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: objectMeta("", user), Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-policy-viewer"},
	}
	must(t, sp.client.Create(t.Context(), binding))
	sp.discard(t, binding)
	sp.awaitTrue(t, "rights of "+user, func(context.Context) (bool, error) {
		return sp.plugin(t, "", "check", "--as", user, "--", "ls").code == 0, nil
	})
	return user
}

// toolcall-user is enough for everything but reading policies, and what is missing is named.
func TestPluginWithTheShippedRoleAlone(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	user := "plain-" + sp.namespace
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
	expectSaid(t, sp.plugin(t, "", "run", "--as", user, "--", "ls"), 125, "", "the ClusterRole toolcall-user has the right to")
	sp.letCreate(t, subject)
	sp.allow(t, "plain-tools", subject, use("bash"))
	sp.awaitTrue(t, "rights of "+user, func(context.Context) (bool, error) {
		return sp.plugin(t, "", "run", "--as", user, "--shell", "true").code == 0, nil
	})
	lines, _, exit := sp.follower(t, "run", "--as", user, "--name", "plain", "--shell", "echo live; sleep 2; echo end")
	if got := nextLine(t, lines); got != "live" {
		t.Errorf("got %q", got)
	}
	expectSaid(t, sp.plugin(t, "", "logs", "--as", user, "plain"), 0, "live\n", "")
	expectSaid(t, sp.plugin(t, "", "cancel", "--as", user, "plain"), 0, "plain asked to stop\n", "")
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "note:") {
			t.Error(lines.Text())
		}
	}
	if code := exit(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	got := sp.plugin(t, "", "check", "--as", user, "--shell", "true")
	if got.code != 125 || !strings.Contains(got.out, "bash, which you may use") || !strings.Contains(got.err, "toolcall-policy-viewer") {
		t.Errorf("check: %+v", got)
	}
	if got = sp.plugin(t, "", "env", "list", "--as", user); got.code != 0 || !strings.Contains(got.out, "may not read policies") || !strings.Contains(got.out, toolImage) {
		t.Errorf("env list: %+v", got)
	}
}

func TestPluginExplainsADenial(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	ran := sp.plugin(t, "", "run", "--name", "no", "--", "ls", "a;b")
	if ran.code != 126 || !strings.Contains(ran.err, "ArgumentNotAllowed") {
		t.Fatalf("run: %+v", ran)
	}
	got := sp.plugin(t, "", "explain-denial", "no")
	for _, want := range []string{"ArgumentNotAllowed", "spec.arguments.metacharacters", "--shell", sp.policy + ", of environment " + defaultEnv, "denied for the same reason"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q isn't in %s%s", want, got.out, got.err)
		}
	}
	policy := &v1alpha1.ExecutionPolicy{}
	must(t, sp.client.Get(t.Context(), keyOf(&v1alpha1.ExecutionPolicy{ObjectMeta: objectMeta("", sp.policy)}), policy))
	metacharactersAllowed(&policy.Spec)
	must(t, sp.client.Update(t.Context(), policy))
	if got = sp.plugin(t, "", "explain-denial", "no"); !strings.Contains(got.out, "the same call from you would be allowed") {
		t.Errorf("after the policy changed: %+v", got)
	}
	sp.plugin(t, "", "run", "--name", "yes", "--", "true")
	expectSaid(t, sp.plugin(t, "", "explain-denial", "yes"), 1, "", "wasn't denied, it is Succeeded")
}

func TestPluginCompletesNamesFromTheCluster(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	sp.newEnvironment(t, "other")
	sp.plugin(t, "", "run", "--name", "first", "--", "true")
	sp.plugin(t, "", "run", "--name", "second", "--", "true")
	for line, want := range map[string]string{
		"run --env ":   "other tools",
		"run --env o":  "other",
		"logs ":        "first second",
		"logs s":       "second",
		"logs first ":  "",
		"wait first ":  "second",
		"describe fi":  "first",
		"get --phase ": "Cancelled Denied Failed Pending Running Succeeded",
		"run --live ":  "always auto never",
	} {
		words := strings.Split(line, " ")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := sp.pluginCommand(t, ctx, words...)
		cmd.Args = append([]string{cmd.Args[0], "__complete"}, cmd.Args[1:]...)
		out, err := cmd.Output()
		cancel()
		if got := completions(string(out)); err != nil || got != want {
			t.Errorf("%q completes to %q, not %q (%v)", line, got, want, err)
		}
	}
}

// completions are the sorted proposals in what kubectl __complete prints.
func completions(out string) string {
	var names []string
	for line := range strings.Lines(out) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "\t")
		if line != "" && !strings.HasPrefix(line, ":") && !strings.HasPrefix(line, "[") {
			names = append(names, line)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
