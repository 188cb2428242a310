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
