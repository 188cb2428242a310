package sandbox

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/result"
)

// A part of a value isn't redacted, so that nothing may be cut here.
func TestPathsAreReportedWhole(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("/a-directory", 300)
	var o observed
	o.addExecuted(long + "/run")
	o.addRefused(long+"/refused\xff", result.RuleNotListed)
	got := &result.Outcome{}
	o.report(got)
	want := &result.Outcome{
		Executed: result.Programs{{Path: long + "/run", Count: 1}},
		Refused:  result.Programs{{Path: long + "/refused\uFFFD", Count: 1, Rule: result.RuleNotListed}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if paths := shortPaths([]string{long}); !cmp.Equal(paths, []string{long}) {
		t.Errorf("got %q", paths)
	}
	message := refusalOf(got.Refused[0], "agents", false)
	if !strings.Contains(message, long+"/refused") {
		t.Errorf("the message is %q", message)
	}
}
