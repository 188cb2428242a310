package sandbox

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/runner/sandbox/filter"
)

func FuzzDecodeStart(f *testing.F) {
	f.Add((&start{program: "/bin/sh", argv: []string{"sh", ""}, env: []string{"A=b"}, files: 4, options: filter.Programs}).encode())
	f.Add((&start{program: "a", options: filter.Network | filter.UDP}).encode())
	f.Add((&start{program: "a", options: filter.DenyNetwork}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStart(b)
		if err != nil {
			return
		}
		again, err := decodeStart(s.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, again, cmp.AllowUnexported(start{})); diff != "" {
			t.Error(diff)
		}
	})
}
