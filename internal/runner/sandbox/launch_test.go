package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/programs"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

func TestTheMessageOfACallThatFailedNamesWhatWasRefused(t *testing.T) {
	r := &rules.Rules{Policy: "agents", Programs: &rules.Programs{}}
	p := &Process{domain: &Domain{rules: r}, watch: programs.NewWatch(programs.Resolve(r, nil, "", func(int) {}))}
	if p.watch.MayRun(os.Getpid()) {
		t.Fatal("nothing is listed, and this test may run")
	}
	for reason, named := range map[string]bool{
		result.NonZeroExit: true, result.Signaled: true, result.TimedOut: true, result.OOMKilled: true,
		result.Completed: false, result.CancelRequested: false, result.CommandNotFound: false,
	} {
		o := result.Outcome{Reason: reason}
		if p.Report(&o); strings.Contains(o.Message, filepath.Base(self(t))) != named {
			t.Errorf("%s: the message is %s", reason, o.Message)
		}
	}
}
