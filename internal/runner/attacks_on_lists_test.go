package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// What an agent may write to, or a call before it left there, must not widen what its policy lists.
func TestWhatACallMayWriteWidensNoList(t *testing.T) {
	_, work := worlds(t)
	base := filepath.Dir(work)
	for link, to := range map[string]string{"tool": real(t, "id"), "tools": filepath.Dir(real(t, "id"))} {
		if err := os.Symlink(to, filepath.Join(work, link)); err != nil {
			t.Fatal(err)
		}
	}
	plant := "cat " + real(t, "echo") + " > " + work + "/mine; chmod 755 " + work + "/mine; " + work + "/mine ran"
	for name, c := range map[string]struct {
		allowed []string
		script  string
	}{
		"a directory above what it writes":   {[]string{base + "/", "cat", "chmod", "echo"}, plant},
		"a link in what it writes":           {[]string{work + "/tool"}, "id; " + work + "/tool"},
		"a linked directory":                 {[]string{work + "/tools/"}, "id; " + work + "/tools/id"},
		"with leave to run what it may make": {[]string{work + "/tool"}, "id"},
		"with leave, by a link in its place": {[]string{work + "/"}, "id; " + work + "/tool; " + work + "/tools/id"},
	} {
		programs := &rules.Programs{Allowed: c.allowed, AllowWritable: strings.HasPrefix(name, "with leave")}
		o := held(t, &rules.Rules{WritePaths: []string{work}, Programs: programs}, c.script)
		if text(o.Stdout) != "" || len(o.Refused) == 0 {
			t.Errorf("%s: %s\nexecuted %+v", name, describe(o), o.Executed)
		}
	}
}

// A link that a call before this one made must not choose where the next may write.
func TestALinkThatACallMadeIsNoRoot(t *testing.T) {
	_, work := worlds(t)
	other := filepath.Join(filepath.Dir(work), "other")
	if err := os.Mkdir(other, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(other, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(work, "out")); err != nil {
		t.Fatal(err)
	}
	for name, roots := range map[string][]string{"beside its directory": {work, work + "/out"}, "alone": {work + "/out"}} {
		o := held(t, &rules.Rules{WritePaths: roots, Programs: &rules.Programs{Allowed: []string{"true"}}}, "echo x > "+other+"/file")
		if _, err := os.Stat(other + "/file"); err == nil {
			t.Errorf("%s: it was written: %s", name, describe(o))
		}
	}
}

// The supervisor has the same user as the command.
func TestTheSupervisorsLimitsAreItsOwn(t *testing.T) {
	needs(t, "python3")
	_, work := worlds(t)
	script := `
import ctypes, os, resource
def ioprio(which, who):
    if ctypes.CDLL(None).syscall(%d, which, who, 3 << 13) < 0:
        raise PermissionError
for change in [lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0)),
               lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
               lambda: os.setpriority(os.PRIO_USER, 0, 19),
               lambda: os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0)),
               lambda: ioprio(1, os.getppid()), lambda: ioprio(3, 0)]:
    try:
        change()
        print("changed")
    except PermissionError:
        print("refused")
resource.prlimit(0, resource.RLIMIT_NOFILE, (50, 50))
print(resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)[0] > 0)
`
	script = fmt.Sprintf(script, unix.SYS_IOPRIO_SET)
	o := held(t, &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"python3"}}}, "exec python3 -c '"+script+"'")
	if text(o.Stdout) != strings.Repeat("refused\n", 6)+"True\n" || o.Reason != result.Completed {
		t.Error(describe(o))
	}
}
