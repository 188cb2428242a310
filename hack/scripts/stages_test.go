package scripts

import (
	"strings"
	"testing"
)

// stages are the tests of a stage of hack/stages.sh, of which gotestsum says that they passed. events are what go test said.
func stages(t *testing.T, events string) (string, error) {
	t.Helper()
	p := newProject(t, "stages.sh")
	p.write("events", events)
	p.write("bin/gotestsum", "#!/bin/sh\nfor a; do case $a in --jsonfile=*) cp events \"${a#*=}\";; esac; done\n")
	out, _, err := p.run("source hack/lib.sh; source hack/stages.sh; mode=default; go_test unit . pkgname ./a ./b")
	return out, err
}

// gotestsum runs failed tests once more, unless it sees a panic.
func TestAStageFailsWhereNotAllTestsRan(t *testing.T) {
	t.Parallel()
	event := func(action, of, test string) string {
		text := `{"Time":"2026-01-02T03:04:05Z","Action":"` + action + `","Package":"` + of + `"`
		if test != "" {
			text += `,"Test":"` + test + `"`
		}
		return text + "}\n"
	}
	one := func(of, end string) string { return event("run", of, "TestOne") + event(end, of, "TestOne") }
	died := event("run", "b", "TestTwo") + event("output", "b", "TestTwo") + event("fail", "b", "")
	again := event("run", "b", "TestTwo") + event("pass", "b", "TestTwo")
	for name, c := range map[string]struct{ events, want string }{
		"all passed":                       {one("a", "pass") + one("b", "skip") + event("pass", "a", "") + event("pass", "b", ""), ""},
		"one passed when run once more":    {one("b", "fail") + event("fail", "b", "") + one("b", "pass") + event("pass", "b", ""), ""},
		"a package without a failed test":  {one("a", "fail") + event("fail", "a", "") + one("a", "pass") + event("fail", "b", ""), "failed without a failed test: b"},
		"a binary that died":               {died + again, "began and never ended: b TestTwo"},
		"a binary that died after failure": {one("b", "fail") + died + one("b", "pass") + again, "began and never ended: b TestTwo"},
	} {
		out, err := stages(t, c.events)
		if (err == nil) != (c.want == "") || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
