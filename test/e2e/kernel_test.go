package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// listed has the kernel hold calls to programs.
func listed(programs ...string) func(*v1alpha1.ExecutionPolicySpec) {
	return func(p *v1alpha1.ExecutionPolicySpec) {
		p.Access = v1alpha1.AccessOpen
		p.Shell = &v1alpha1.ShellPolicy{Enabled: ptr.To(true), Commands: v1alpha1.ShellAllowlisted}
		p.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: programs}
		p.Arguments = &v1alpha1.ArgumentsPolicy{Metacharacters: v1alpha1.MetacharactersAllow}
		p.Code = &v1alpha1.CodePolicy{DeniedModules: []string{}}
	}
}

// What a listed interpreter tries is refused where it is tried, and the status says what.
func TestTheKernelRefusesWhatAnInterpreterTries(t *testing.T) {
	sessionFirst(t, testTheKernelRefusesWhatAnInterpreterTries, wayCold)
}

func testTheKernelRefusesWhatAnInterpreterTries(t *testing.T, w way) {
	sp := w.newSpace(t, listed("python3", "ls"), func(p *v1alpha1.ExecutionPolicySpec) {
		p.Files = &v1alpha1.FilesPolicy{WritePaths: []string{"/workspace", "/tmp"}}
	})
	call := sp.run(t, code("python", `
import subprocess
print(subprocess.run(["ls", "/etc/hostname"], capture_output=True, text=True).stdout, end="")
for command in ["curl", "http://example.com"], ["rm", "-rf", "/usr"]:
    try:
        subprocess.run(command)
        print("ran", command)
    except OSError as e:
        print(command[0], e.strerror)
try:
    open("/etc/passwd", "a")
    print("opened")
except OSError as e:
    print(e.filename, e.strerror)
with open("/workspace/note", "w") as f:
    f.write("x")
raise SystemExit(3)
`))
	if call.Status.Stdout != "/etc/hostname\ncurl Permission denied\nrm Permission denied\n/etc/passwd Permission denied\n" {
		t.Errorf("stdout: %q, stderr: %q", call.Status.Stdout, call.Status.Stderr)
	}
	wantRefused(t, call, "/usr/bin/curl", "/usr/bin/rm")
	expectMessage(t, call, `was not allowed to run: add it to binaries.allowed of policy "`+sp.policy+`"`)
	if !strings.Contains(call.Status.Output, "was not allowed to run") {
		t.Errorf("output: %q", call.Status.Output)
	}
	i := call.Status.Isolation
	if i == nil || !i.Programs || !i.Writes || !i.Signals || i.LandlockABI < 6 {
		t.Errorf("isolation: %+v", i)
	}
	if names := executed(call); !slices.Contains(names, "ls") {
		t.Errorf("executed: %v", names)
	}
}

// wantRefused wants each of these programs to be refused, and nothing else.
func wantRefused(t *testing.T, call *v1alpha1.ToolCall, programs ...string) {
	t.Helper()
	var got []string
	for _, p := range call.Status.Refused {
		got = append(got, p.Path)
	}
	slices.Sort(got)
	if !slices.Equal(got, programs) {
		t.Errorf("refused: %+v", call.Status.Refused)
	}
}

func executed(call *v1alpha1.ToolCall) []string {
	var names []string
	for _, p := range call.Status.Executed {
		names = append(names, path.Base(p.Path))
	}
	return names
}

func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile("../../internal/guards/testdata/" + name)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	must(t, err)
}

// isHelper says that a program is one that a listed program needs itself: they are the built-in table's, which a test
// beside the runner compares with what the programs execute.
func isHelper(program string, listed []string) bool {
	helpers := map[string][]string{"git": {"sh", "dash", "uname", "basename", "sed", "git"}, "awk": {"mawk", "gawk", "original-awk"}, "sh": {"dash"}, "test": {"test"}}
	for _, name := range listed {
		if slices.Contains(helpers[name], program) {
			return true
		}
	}
	return strings.HasPrefix(program, "git-") && slices.Contains(listed, "git")
}

// A list of programs doesn't stand in the way of ordinary work: the commands end as they do without one.
func TestOrdinaryCommandsRunAsWithoutAPolicy(t *testing.T) {
	sessionFirst(t, testOrdinaryCommandsRunAsWithoutAPolicy, wayCold)
}

func testOrdinaryCommandsRunAsWithoutAPolicy(t *testing.T, w way) {
	vectors := struct{ Allowed, Commands []string }{}
	readVectors(t, "ordinary.json", &vectors)
	free, held := w.newSpace(t), w.newSpace(t, listed(vectors.Allowed...))
	first := func(command string) string {
		return strings.FieldsFunc(command+" ", func(r rune) bool { return r == ' ' || r == ';' })[0]
	}
	var names []string
	for _, command := range vectors.Commands {
		if name := first(command); regexp.MustCompile(`^[a-z0-9._-]+$`).MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	have := free.run(t, shell("for p in "+strings.Join(names, " ")+"; do type -P \"$p\" >/dev/null && echo \"$p\"; done; true")).Status.Stdout
	var repositories atomic.Int32
	script := func(command string) v1alpha1.ToolCallSpec {
		// A repository and some files, for the commands to find. Calls of a session have one each.
		repository := fmt.Sprintf("/workspace/%d", repositories.Add(1))
		return within(20, shell("git init -q "+repository+" 2>/dev/null && cd "+repository+" && echo hello > a.txt && git add a.txt && git -c user.name=a -c user.email=a@example.com commit -qm first\n"+command))
	}
	tried := 0
	for _, command := range vectors.Commands {
		if !slices.Contains(strings.Fields(have), first(command)) {
			continue
		}
		tried++
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			var want, got *v1alpha1.ToolCall
			// Some end differently each time: tar sees its own archive grow, or doesn't. Then each way has been seen both ways soon.
			wanted, seen := map[string]bool{}, map[string]bool{}
			end := func(c *v1alpha1.ToolCall) string {
				return fmt.Sprint(c.Status.Reason, ptr.Deref(c.Status.ExitCode, -2))
			}
			for range 5 {
				want, got = free.run(t, script(command)), held.run(t, script(command))
				wanted[end(want)], seen[end(got)] = true, true
				for one := range seen {
					if wanted[one] {
						return
					}
				}
			}
			t.Errorf("ends %s %d without the list, and with it %s %d: refused %+v, %s",
				want.Status.Reason, ptr.Deref(want.Status.ExitCode, -2), got.Status.Reason, ptr.Deref(got.Status.ExitCode, -2), got.Status.Refused, clip(got.Status.Output, 600))
		})
	}
	t.Logf("%d of %d commands have their program in the image", tried, len(vectors.Commands))
	if tried < 20 {
		t.Error("too few commands could be tried")
	}
}
