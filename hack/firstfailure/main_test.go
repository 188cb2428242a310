package main

import (
	"strings"
	"testing"
)

func TestTheTestThatFailedFirstIsPrinted(t *testing.T) {
	t.Parallel()
	const events = `# a build prints this
{"Time":"2026-01-02T10:00:01Z","Action":"output","Package":"p","Test":"TestLater","Output":"later\n"}
{"Time":"2026-01-02T10:00:09Z","Action":"fail","Package":"p","Test":"TestLater"}
{"Time":"2026-01-02T10:00:02Z","Action":"output","Package":"p","Test":"TestFirst/sub","Output":"first\n"}
{"Time":"2026-01-02T10:00:03Z","Action":"fail","Package":"p","Test":"TestFirst/sub"}
{"Time":"2026-01-02T10:00:03.1Z","Action":"fail","Package":"p","Test":"TestFirst"}
{"Time":"2026-01-02T10:00:02Z","Action":"pass","Package":"q"}
{"Time":"2026-01-02T1`
	got, found := firstFailure(read(strings.NewReader(events)))
	if want := "p TestFirst/sub\nfirst\n"; !found || got != want {
		t.Errorf("got %q, %t, want %q", got, found, want)
	}
}

func TestNothingIsPrintedWithoutAFailure(t *testing.T) {
	t.Parallel()
	if got, found := firstFailure(read(strings.NewReader(`{"Action":"pass","Package":"p"}`))); found {
		t.Errorf("got %q", got)
	}
}

func TestFailedTestsAreListed(t *testing.T) {
	t.Parallel()
	const failed = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/part"}
{"Action":"fail","Package":"p","Test":"TestA/part"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`
	for name, tc := range map[string]struct {
		events, lines string
		isWhole       bool
	}{
		"tests":                     {failed, "p TestA\n", true},
		"a package doesn't compile": {failed + `{"Action":"fail","Package":"q"}`, "p TestA\n", false},
		"a test that didn't end":    {failed + `{"Action":"run","Package":"p","Test":"TestC"}`, "p TestA\n", false},
		"a panic":                   {`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: nil\n"}` + "\n" + failed, "p TestA\n", false},
		"nothing":                   {`{"Action":"pass","Package":"p"}`, "", true},
	} {
		if lines, isWhole := failures(read(strings.NewReader(tc.events))); lines != tc.lines || isWhole != tc.isWhole {
			t.Errorf("%s: %q, %t", name, lines, isWhole)
		}
	}
}
