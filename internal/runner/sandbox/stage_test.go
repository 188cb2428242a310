package sandbox

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/filter"
)

func TestAStageIsToldTheWholeCommand(t *testing.T) {
	for _, s := range []start{
		{program: "/bin/sh", argv: []string{"sh", ""}, env: []string{"A=b"}, files: 4, rulesets: 1, options: filter.Programs},
		{program: "a", argv: []string{}, env: []string{}, options: filter.Network | filter.UDP},
		{program: "a", argv: []string{}, env: []string{""}, options: filter.DenyNetwork},
	} {
		b, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, decodeStart(b), cmp.AllowUnexported(start{})); diff != "" {
			t.Error(diff)
		}
	}
}

// What a string of the command says after a zero byte can't become another one.
func TestNoStringOfACommandIsTwo(t *testing.T) {
	for _, s := range []start{
		{program: "a\x00b"}, {program: "a", argv: []string{"a\x00b"}}, {program: "a", env: []string{"A=b\x00C=d"}},
	} {
		if b, err := s.encode(); err != unix.EINVAL {
			t.Errorf("%q: %v", b, err)
		}
	}
}
