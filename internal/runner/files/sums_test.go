package files

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func TestAFileIsSummedOnceUntilItChanges(t *testing.T) {
	defer func(before time.Duration) { sums.age = before }(sums.age)
	sums.age = 0
	root := t.TempDir()
	file := filepath.Join(root, "f")
	rules := &Rules{FileRules: spec.FileRules{ReadPaths: []string{root}}}
	open := func() *Source {
		t.Helper()
		s, err := OpenSource(t.Context(), rules, &spec.File{Path: file})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	sum := func(s *Source) string {
		t.Helper()
		if done, err := s.SumSome(t.Context(), 1<<20); !done || err != nil {
			t.Fatal(done, err)
		}
		return s.SHA256
	}
	if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := open(); s.SHA256 != "" || sum(s) != sumOf([]byte("one")) {
		t.Errorf("at first: %s", s.SHA256)
	}
	known := open()
	if known.SHA256 != sumOf([]byte("one")) {
		t.Errorf("the second time: %q", known.SHA256)
	}
	if err := os.WriteFile(file, []byte("longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := open(); s.SHA256 != "" || sum(s) != sumOf([]byte("longer")) {
		t.Errorf("after a write: %s", s.SHA256)
	}
}

// A mapped file can change without its times: who reads it whole finds out, and so does the next one.
func TestAChecksumThatTurnsOutWrongIsForgotten(t *testing.T) {
	defer func(before time.Duration) { sums.age = before }(sums.age)
	sums.age = 0
	root := t.TempDir()
	file := filepath.Join(root, "f")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	request, rules := &spec.File{Path: file}, &Rules{FileRules: spec.FileRules{ReadPaths: []string{root}}}
	first, err := OpenSource(t.Context(), rules, request)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	sums.add(&first.before, time.Now(), sumOf([]byte("another")))
	wrong, err := OpenSource(t.Context(), rules, request)
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	_, err = wrong.ReadAt(t.Context(), make([]byte, 10), 0)
	mustBe(t, err, reason.FileChanged)
	right, err := OpenSource(t.Context(), rules, request)
	if err != nil {
		t.Fatal(err)
	}
	defer right.Close()
	if right.SHA256 != "" {
		t.Errorf("it is still %s", right.SHA256)
	}
}

func TestFewChecksumsAreRemembered(t *testing.T) {
	t.Parallel()
	var k knownSums
	s := Source{}
	for i := range int64(3 * maxSums) {
		s.before.Size = i
		k.add(&s.before, time.Now(), "sum")
	}
	if k.get(&s.before) == "" || len(k.all) != maxSums {
		t.Errorf("%d are known", len(k.all))
	}
	young := knownSums{age: time.Hour}
	s.before.Ctim.Sec = time.Now().Unix()
	if young.add(&s.before, time.Now(), "sum"); len(young.all) != 0 {
		t.Error("what was just written to is remembered")
	}
}
