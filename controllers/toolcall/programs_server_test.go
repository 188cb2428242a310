package toolcall_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
)

// programsRecord is the record of a call's programs in the operator's log.
type programsRecord struct {
	UID, Requester, Environment, Policy, Pod, Node, Reason string
	Refused, Executed                                      []result.Program
	MoreRefused, MoreExecuted                              int64
}

func TestTheProgramsThatAStatusHasNoRoomForAreInTheLog(t *testing.T) {
	w := fixture.NewWorld(t)
	w.ListedPrograms()
	w.Environment("env", fixture.AsDefault)
	outcome := fixture.Completed
	for i := range result.MaxPrograms {
		outcome.Refused = append(outcome.Refused, result.Program{Path: fmt.Sprint("/usr/bin/refused-", i), Count: int64(i + 1), Rule: result.RuleNotListed})
	}
	outcome.Refused[20].Path = "/tmp/a\nb\x1b[2J\u009b\u202e\"é"
	outcome.MoreRefused = 7
	outcome.Executed = result.Programs{{Path: "/usr/bin/bash", Count: 1}}
	call, log := w.EndWith(outcome)

	s := call.Status
	if len(s.Refused) != v1alpha1.MaxPrograms || s.OmittedRefused != int64((17+result.MaxPrograms)*(result.MaxPrograms-16)/2+7) || len(s.Executed) != 1 || s.OmittedExecuted != 0 {
		t.Errorf("the status lists %d and %d more, and %d that were executed and %d more", len(s.Refused), s.OmittedRefused, len(s.Executed), s.OmittedExecuted)
	}
	if strings.Count(log, "\n") != 1 {
		t.Fatalf("logged %q; want one line", log)
	}
	for _, r := range strings.TrimSuffix(log, "\n") {
		if r < ' ' || r == '\u009b' || r == '\u202e' {
			t.Errorf("%U is in the log", r)
		}
	}
	var got programsRecord
	if err := json.Unmarshal([]byte(log), &got); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	outcome.Refused[20].Path = `/tmp/a\nb\x1b[2J\u009b\u202e\"é`
	want := programsRecord{
		UID: string(call.UID), Requester: `agent\u202e`, Environment: "env", Policy: w.OpenPolicyOnce(), Pod: s.Pod, Node: "node-1", Reason: result.Completed,
		Refused: outcome.Refused, Executed: outcome.Executed, MoreRefused: 7,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheLogHasNoProgramsThatTheStatusLists(t *testing.T) {
	w := fixture.NewWorld(t)
	w.ListedPrograms()
	w.Environment("env", fixture.AsDefault)
	outcome := fixture.Completed
	for i := range v1alpha1.MaxPrograms {
		outcome.Refused = append(outcome.Refused, result.Program{Path: fmt.Sprint("/usr/bin/refused-", i), Count: 1, Rule: result.RuleNotListed})
	}
	if call, log := w.EndWith(outcome); log != "" || len(call.Status.Refused) != v1alpha1.MaxPrograms {
		t.Errorf("%d are listed, and logged is %q", len(call.Status.Refused), log)
	}
	outcome.Executed = append(outcome.Refused, result.Program{Path: "/usr/bin/one-more", Count: 1})
	if call, log := w.EndWith(outcome); !strings.Contains(log, "/usr/bin/one-more") || call.Status.OmittedExecuted != 1 {
		t.Errorf("%d more were executed, and logged is %q", call.Status.OmittedExecuted, log)
	}
}
