package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

func record(n int) Record {
	return Record{Schema: Schema, ID: CallID(fmt.Sprint(n)), Kind: KindCall, Name: strings.Repeat("x", 100)}
}

func write(t *testing.T, to Sink, records ...Record) {
	t.Helper()
	for _, r := range records {
		if err := to.Write(r); err != nil {
			t.Fatal(err)
		}
	}
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(raw)
}

func TestFullFilesAreRotatedAndReadBack(t *testing.T) {
	t.Parallel()
	f := &File{Path: filepath.Join(t.TempDir(), "audit.log"), MaxBytes: 1000, MaxFiles: 3}
	defer f.Close()
	const all = 20
	for i := range all {
		write(t, f, record(i))
	}
	total := 0
	for n := range f.MaxFiles {
		content := contentOf(t, f.name(n))
		if len(content) > 1000 || !strings.HasSuffix(content, "\n") {
			t.Errorf("file %d has %d bytes", n, len(content))
		}
		total += strings.Count(content, "\n")
	}
	if contentOf(t, f.name(f.MaxFiles)) != "" {
		t.Error("more files are kept")
	}
	ids, err := f.IDs()
	if has := ids.Has(CallID(fmt.Sprint(all - 1))); err != nil || len(ids) != total || !has {
		t.Errorf("%d IDs of %d lines, %v", len(ids), total, err)
	}
	if ids.Has(CallID("0")) {
		t.Error("the oldest record is kept")
	}
	one := &File{Path: filepath.Join(t.TempDir(), "audit.log"), MaxBytes: 1000, MaxFiles: 1}
	defer one.Close()
	for i := range all {
		write(t, one, record(i))
	}
	if entries, err := os.ReadDir(filepath.Dir(one.Path)); err != nil || len(entries) != 1 {
		t.Errorf("%d files are kept, %v", len(entries), err)
	}
}

// Two operators can write to one volume for a moment.
func TestAFileThatAnotherOperatorHasRenamedIsLeft(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	first := &File{Path: path, MaxBytes: 1000, MaxFiles: 2}
	next := &File{Path: path, MaxBytes: 1000, MaxFiles: 2}
	defer first.Close()
	defer next.Close()
	n := 0
	for ; contentOf(t, first.name(1)) == ""; n++ {
		to := next
		if n == 0 {
			to = first
		}
		write(t, to, record(n))
	}
	write(t, first, record(n))
	if ids, err := next.IDs(); err != nil || len(ids) != n+1 {
		t.Errorf("%d of %d records are there: %v", len(ids), n+1, err)
	}
}

// An operator that is killed while it writes, or whose volume is full, leaves a part of a line. What others write stays.
func TestALineWithoutAnEndIsNoRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	r := record(2)
	line := string(r.line())
	torn := line[:len(line)-1]
	for _, before := range []string{"", "no record\n", strings.Repeat("a long line ", 20000) + "\n"} {
		first := &File{Path: path, MaxBytes: 1 << 20, MaxFiles: 2}
		if err := os.WriteFile(path, []byte(before), fileMode); err != nil {
			t.Fatal(err)
		}
		write(t, first, record(1))
		whole := contentOf(t, path)
		if _, err := first.open.WriteString(torn); err != nil {
			t.Fatal(err)
		}
		next := &File{Path: path, MaxBytes: 1 << 20, MaxFiles: 2}
		if ids, err := next.IDs(); err != nil || len(ids) != 1 {
			t.Errorf("%v, %v", ids, err)
		}
		write(t, next, r)
		if _, err := first.open.WriteString(torn); err != nil {
			t.Fatal(err)
		}
		write(t, next, record(3))
		first.Close()
		next.Close()
		three := record(3)
		if got := contentOf(t, path); got != whole+torn+"\n"+line+torn+"\n"+string(three.line()) {
			t.Errorf("got %d bytes, in the end %q", len(got), got[max(len(got)-1000, 0):])
		}
		if ids, err := next.IDs(); err != nil || len(ids) != 3 {
			t.Errorf("%v, %v", ids, err)
		}
	}
}

// It runs alone: what other tests allocate would count.
func TestALongLineIsNotKeptInMemory(t *testing.T) {
	f := &File{Path: filepath.Join(t.TempDir(), "audit.log"), MaxBytes: 1 << 30, MaxFiles: 1}
	defer f.Close()
	write(t, f, record(1))
	if err := os.Truncate(f.Path, 64<<20); err != nil {
		t.Fatal(err)
	}
	write(t, f, record(2))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ids, err := f.IDs()
	runtime.ReadMemStats(&after)
	if err != nil || len(ids) != 2 {
		t.Errorf("%v, %v", ids, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes are allocated", n)
	}
}

func TestWhatCannotBeWrittenLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	f := &File{Path: filepath.Join(dir, "audit.log"), MaxBytes: 1000, MaxFiles: 2}
	defer f.Close()
	if f.Write(record(1)) == nil {
		t.Fatal("it is written where there is no folder")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, f, record(1))
	// A folder in the way of the rotation.
	if err := os.MkdirAll(filepath.Join(f.name(1), "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	var fails int
	for i := range 10 {
		if f.Write(record(i)) != nil {
			fails++
		}
	}
	if content := contentOf(t, f.Path); fails == 0 || len(content) > 1000 {
		t.Errorf("%d writes failed, and the file has %d bytes", fails, len(content))
	}
}

func TestHostileTextsStayInTheirLine(t *testing.T) {
	t.Parallel()
	hostile := "a\nb\r\n\x00\u2028\x1b[2J\"},{\"schema\":\"toolcall.dev/audit/v1\",\"id\":\"call/forged\"}\xff" + strings.Repeat("x", 5000)
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "uid"},
		Spec: v1alpha1.ToolCallSpec{
			RequestedBy: &v1alpha1.Requester{Username: hostile, Groups: []string{hostile, hostile}},
			Structured:  &v1alpha1.StructuredAction{Binary: hostile, Args: []string{hostile, strings.Repeat("\n", 100<<10)}},
		},
		Status: v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Message: hostile, Signal: hostile, Node: hostile},
	}
	for i := range 100 {
		call.Spec.RequestedBy.Groups = append(call.Spec.RequestedBy.Groups, fmt.Sprint(i))
	}
	var b bytes.Buffer
	write(t, &Lines{To: &b}, OfCall(call, About{WithArguments: true}), record(2))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 || len(lines[0]) > 64<<10 {
		t.Fatalf("%d lines, the first of %d bytes", len(lines), len(lines[0]))
	}
	var r Record
	if err := json.Unmarshal([]byte(lines[0]), &r); err != nil || r.ID != "call/uid" || r.Who.OmittedGroups != 102-maxGroups {
		t.Errorf("%v, %+v", err, r.Who)
	}
	if id := idOf([]byte(lines[0])); id != "call/uid" {
		t.Errorf("read back as %q", id)
	}
}

type broken struct{ bytes.Buffer }

func (b *broken) Write(p []byte) (int, error) {
	if b.Len() == 0 {
		n, _ := b.Buffer.Write(p[:10])
		return n, errors.New("full")
	}
	return b.Buffer.Write(p)
}

func TestALineThatBrokeOffEndsBeforeTheNext(t *testing.T) {
	t.Parallel()
	var b broken
	l := &Lines{To: &b}
	if l.Write(record(1)) == nil {
		t.Fatal("it was written")
	}
	write(t, l, record(1), record(2))
	if lines := strings.Split(b.String(), "\n"); len(lines) != 4 || idOf([]byte(lines[1])) != "call/1" || idOf([]byte(lines[2])) != "call/2" {
		t.Errorf("got %q", lines)
	}
}

func TestWhatIsReadBackIsBounded(t *testing.T) {
	t.Parallel()
	f := &File{Path: filepath.Join(t.TempDir(), "audit.log"), MaxBytes: 1000, MaxFiles: 9}
	defer f.Close()
	for i := range 20 {
		other := record(i)
		other.ID = fmt.Sprint("transfer/", i)
		write(t, f, record(i), other)
	}
	ids, err := f.readBack(8)
	if err != nil || len(ids) != 8 || !ids.Has(CallID("19")) || ids.Has(CallID("0")) || ids.Has("transfer/19") {
		t.Errorf("%d IDs, %v", len(ids), err)
	}
}
