package files

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Line ends take nothing of what something that isn't shown can be long, so many of them are read. If each round read no more than
// what is left, this would take minutes.
func TestLineEndsAroundATextAreReadInLargeParts(t *testing.T) {
	t.Parallel()
	const value = 8000
	around := bytes.Repeat([]byte("x"), plainForm*value+maxEscape)
	lines := bytes.Repeat([]byte("\n"), ShownForm*value)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, bytes.Join([][]byte{lines, around, []byte("page"), around, lines}, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := &surroundings{ctx: t.Context(), fd: int(file.Fd()), most: ShownForm * value, plain: plainForm * value}
	at := int64(len(lines) + len(around))
	before, err := s.before(at, nil)
	if err != nil || int64(len(before)) != s.most || !bytes.HasSuffix(before, around) {
		t.Errorf("%d bytes before: %v", len(before), err)
	}
	after, err := s.after(at+4, nil)
	if err != nil || int64(len(after)) != s.most || !bytes.HasPrefix(after, around) {
		t.Errorf("%d bytes after: %v", len(after), err)
	}
}
