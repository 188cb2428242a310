package toolcall

import (
	"fmt"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
)

// fileStatus is what a file action did; nil for other calls.
func fileStatus(f *result.File) *v1alpha1.FileStatus {
	if f == nil {
		return nil
	}
	s := &v1alpha1.FileStatus{
		Path: f.Path, Bytes: f.Bytes, SHA256: f.SHA256, Lines: f.Lines, Matches: f.Matches, Truncated: f.Truncated,
		NextOffset: f.NextOffset, Changed: f.Changed, Created: f.Created, Replaced: f.Replaced, Binary: f.Binary,
	}
	if skipped := v1alpha1.SkippedFiles(f.Skipped); skipped != (v1alpha1.SkippedFiles{}) {
		s.Skipped = &skipped
	}
	return s
}

// fileOutput is one text for a model: what was read or found, then what it has to know about it.
func fileOutput(stdout string, s *v1alpha1.ToolCallStatus) string {
	f := s.File
	paragraphs := []string{strings.TrimSuffix(stdout, "\n")}
	if strings.TrimSpace(stdout) == "" || f.Binary {
		paragraphs[0] = s.Message
	}
	switch {
	case f.Binary && f.Lines != nil:
	case f.NextOffset != nil && f.Lines != nil:
		paragraphs = append(paragraphs, fmt.Sprintf("There is more: read on from offset %d.", *f.NextOffset))
	case f.NextOffset != nil:
		paragraphs = append(paragraphs, fmt.Sprintf("There is more: read on from offset %d with unit Bytes.", *f.NextOffset))
	case f.Truncated && f.Matches == nil:
		paragraphs = append(paragraphs, "Only parts of this were found after the pod was lost: read the file again.")
	case f.Truncated:
		paragraphs = append(paragraphs, "There are more results than these: narrow the search.")
	}
	if f.Changed {
		paragraphs = append(paragraphs, "The file was written to while it was read: this may never have been its content.")
	}
	if f.Lines != nil && !f.Binary && s.Streams.Stdout.InvalidUTF8 {
		paragraphs = append(paragraphs, result.NotUTF8)
	}
	if left := leftOut(f.Skipped); left != "" {
		paragraphs = append(paragraphs, "Left out: "+left+".")
	}
	return strings.Join(paragraphs, "\n\n")
}

// leftOut lists what wasn't looked at.
func leftOut(s *v1alpha1.SkippedFiles) string {
	if s == nil {
		return ""
	}
	var parts []string
	for _, one := range []struct {
		count int64
		what  string
	}{
		{s.Binary, "%d binary files"}, {s.Denied, "%d that the policy denies"}, {s.Unreadable, "%d that can't be read"},
		{s.Deep, "%d directories that are too deep"}, {s.LongLines, "the rest of %d long lines"},
	} {
		if one.count > 0 {
			parts = append(parts, fmt.Sprintf(one.what, one.count))
		}
	}
	return strings.Join(parts, ", ")
}
