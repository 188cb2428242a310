package e2e

import (
	"net/http"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

func collecting(spec v1alpha1.ToolCallSpec, globs ...string) v1alpha1.ToolCallSpec {
	spec.Collect = globs
	return spec
}

func TestWhatACallCollectsChangesNotHowItEnds(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	run := sp.desk(t, "desk")
	failed := run(collecting(shell("mkdir out; echo kept >out/log; ln -s /etc/passwd out/passwd; mkfifo out/fifo; exit 7"), "out/*", "/etc/*", "none/*"))
	if failed.Status.Reason != v1alpha1.ReasonNonZeroExit || *failed.Status.ExitCode != 7 {
		t.Errorf("it ended %s: %s", failed.Status.Reason, failed.Status.Message)
	}
	if a := failed.Status.Artifacts; len(a) != 1 || a[0].Path != "out/log" || a[0].SHA256 != sum("kept\n") || failed.Status.OmittedArtifacts != 2 {
		t.Errorf("it has %+v, %d were left out", a, failed.Status.OmittedArtifacts)
	}
	for _, says := range []string{"out/fifo", `"/etc/*" can't be collected`, `"none/*" matches no file`} {
		if !strings.Contains(failed.Status.ArtifactsMessage, says) {
			t.Errorf("the message lacks %q: %s", says, failed.Status.ArtifactsMessage)
		}
	}
	denied := run(collecting(shell("true"), "../*"))
	if denied.Status.Phase != v1alpha1.PhaseDenied || denied.Status.Reason != v1alpha1.ReasonInvalidArguments {
		t.Errorf("a glob that leads out: %s/%s", denied.Status.Phase, denied.Status.Reason)
	}
	if got := artifact(t, sp.reader(t, ""), denied, "x"); got.code != http.StatusNotFound {
		t.Errorf("of a call that never ran: %d, %s", got.code, got.body)
	}
}
