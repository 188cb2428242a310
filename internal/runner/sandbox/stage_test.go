package sandbox

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/filter"
)

func FuzzDecodeStart(f *testing.F) {
	for _, s := range []start{
		{program: "/bin/sh", argv: []string{"sh", ""}, env: []string{"A=b"}, files: 4, options: filter.Programs},
		{program: "a", options: filter.Network | filter.UDP},
		{program: "a", env: []string{""}, options: filter.DenyNetwork},
	} {
		b, err := s.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStart(b)
		if err != nil {
			return
		}
		again, err := s.encode()
		if diff := cmp.Diff(b, again); err != nil || diff != "" {
			t.Error(err, diff)
		}
	})
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
