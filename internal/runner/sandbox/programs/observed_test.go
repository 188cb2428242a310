package programs

import (
	"strings"
	"testing"
	"unicode/utf8"

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

func TestCountsAreBounded(t *testing.T) {
	var o observed
	for i := range 2 * result.MaxPrograms {
		o.addExecuted("/bin/" + strings.Repeat("x", i))
		o.addRefused(strings.Repeat("é", result.MaxProgramPath)+string(rune('a'+i)), result.RuleNotListed)
		o.addExecuted("/bin/first")
	}
	outcome := result.Outcome{Reason: result.CommandNotFound}
	o.report(&outcome)
	// Paths are whole up to then.
	outcome.Shorten()
	if err := outcome.Validate(); err != nil {
		t.Error(err)
	}
	if len(outcome.Executed) != result.MaxPrograms || outcome.MoreExecuted != result.MaxPrograms+1 || outcome.Executed[1].Count != 2*result.MaxPrograms {
		t.Errorf("executed %+v and %d more", outcome.Executed, outcome.MoreExecuted)
	}
	if len(outcome.Refused) != result.MaxPrograms || outcome.MoreRefused != result.MaxPrograms || !utf8.ValidString(outcome.Refused[0].Path) {
		t.Errorf("refused %+v and %d more", outcome.Refused, outcome.MoreRefused)
	}
}
