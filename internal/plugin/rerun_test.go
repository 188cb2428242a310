package plugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// A rerun does what the finished call did, under another name, for whoever asks for it, and says of which call it is.
func TestRerun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.environment("tools", true)
	f.run("run", "--detach", "--name", "nightly", "-l", "team=search", "-e", "A=1", "-w", "/tmp", "--network-host", "a.example.com", "--timeout", "30s", "--environment", "tools", "--shell", "make").expect(t, 0)
	f.run("rerun", "nightly").expect(t, 125, "call nightly has not finished", "kubectl toolcall attach nightly")
	f.run("cancel", "nightly").expect(t, 0)
	f.end("nightly", cancelled())
	f.operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		return finished(withOutput(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, ExitCode: ptr.To(int32(3))}, "again\n", ""))
	})
	user := f.user([]string{"toolcall-user"}, "bash")
	got := f.run("rerun", "nightly", "--name", "second", "--as", user)
	if got != (printed{"again\n", "call second created, a rerun of nightly\n", 3}) {
		t.Errorf("got %+v", got)
	}
	old, rerun := f.call("nightly"), f.call("second")
	if rerun.Spec.RequestedBy.Username != user || rerun.Labels["team"] != "search" {
		t.Errorf("got %+v", rerun)
	}
	old.Spec.RequestedBy, rerun.Spec.RequestedBy, old.Spec.Cancel = nil, nil, false
	if diff := cmp.Diff(old.Spec, rerun.Spec); diff != "" {
		t.Error(diff)
	}
	f.run("describe", "second").expect(t, 0, "Rerun of: nightly")
	f.run("rerun", "nightly", "--dry-run", "-o", "yaml").expect(t, 0, "generateName: nightly-", "command: make", "network: hosts: - a.example.com")
	detached := f.run("rerun", "nightly", "--detach")
	if name := strings.TrimSpace(detached.out); !strings.HasPrefix(name, "nightly-") || detached.err != "call "+name+" created, a rerun of nightly\n" {
		t.Errorf("got %+v", detached)
	}
	f.run("rerun", "none").expect(t, 125, "call none not found")
	f.run("rerun", "nightly", "--name", "second").expect(t, 125, "a call with a given name runs at most once")
}

// A call of a session isn't run in another session of the same name, whose files are others.
func TestRerunInASession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.readySession("dev")
	f.run("run", "--session", "dev", "--detach", "--name", "c", "--", "ls").expect(t, 0)
	f.end("c", succeeded())
	f.run("rerun", "c", "--detach", "--name", "again").expect(t, 0, "again")
	if ref := f.call("again").Spec.SessionRef; ref.UID != string(s.UID) {
		t.Errorf("the session is %+v", ref)
	}
	if err := f.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	f.run("rerun", "c", "--detach").expect(t, 125, "session dev not found")
	f.readySession("dev")
	f.run("rerun", "c", "--detach").expect(t, 125, "the session that call c ran in is gone, and session dev is another one")
}
