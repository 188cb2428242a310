package files

import (
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/spec"
)

// TestGrepHoldsNoMoreThanItWrites has many matches with long paths that aren't UTF-8.
func TestGrepHoldsNoMoreThanItWrites(t *testing.T) {
	w := newWorld(t)
	w.rules.MaxOutputBytes = 64 << 10
	dir := strings.Repeat(strings.Repeat("\xff", 200)+"/", 15)
	for _, name := range []string{"a", "b"} {
		w.file(dir+name, strings.Repeat("needle"+strings.Repeat("\xff", 400)+"\n", 1000))
	}
	for _, path := range []string{".", dir + "a"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, result := w.must(spec.File{Operation: spec.OperationGrep, Path: path, Pattern: "needle"})
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
			t.Errorf("%d bytes were allocated for %d", used, len(out))
		}
		if len(out) > 64<<10 || number(result.Matches) == 0 || !result.Truncated {
			t.Errorf("%d bytes, %+v", len(out), result)
		}
		if m := decode[Match](t, out)[0]; (m.PathBase64 == "") != (path != ".") || m.LineBase64 == "" || m.LineNumber != 1 {
			t.Errorf("%+v", m)
		}
	}
}

// TestOnlyTemporaryFilesAreHidden has names that are like theirs.
func TestOnlyTemporaryFilesAreHidden(t *testing.T) {
	w := newWorld(t)
	w.file(".toolcall-0123456789abcdef.tmp", "needle")
	var want []string
	for _, name := range []string{
		".toolcall-.tmp", ".toolcall-0123456789ABCDEF.tmp", ".toolcall-0123456789abcde.tmp", ".toolcall-0123456789abcdef.tmp2",
		".toolcall-0123456789abcdeg.tmp", ".toolcall-1123456789abcdef.tmp/f", ".toolcall-x.tmp", "toolcall-0123456789abcdef.tmp",
	} {
		w.file(name, "needle")
		want = append(want, name)
	}
	out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "needle"})
	if diff := cmp.Diff(want, paths(decode[Match](t, out), func(m Match) string { return m.Path })); diff != "" {
		t.Error(diff)
	}
	if out, _ = w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: ".*"}); len(found(t, out)) != len(want)-1 {
		t.Error(out)
	}
}
