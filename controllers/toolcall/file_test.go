package toolcall

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
)

func TestAFileActionsResultBecomesTheCallsEnd(t *testing.T) {
	t.Parallel()
	file := func(reason, message, stdout string, f result.File) func(*result.Outcome) {
		return func(o *result.Outcome) {
			o.Reason, o.Message, o.ExitCode, o.File, o.Stdout, o.Stderr = reason, message, nil, &f, stream(stdout), result.Stream{}
		}
	}
	for name, tc := range map[string]struct {
		change func(*result.Outcome)
		phase  v1alpha1.Phase
		output string
		want   v1alpha1.FileStatus
	}{
		"a file that was read": {
			file(result.Completed, "read 8 bytes of /w/a", "one\ntwo\n", result.File{Path: "/w/a", Bytes: new(int64(8)), Lines: new(int64(2))}),
			v1alpha1.PhaseSucceeded, "one\ntwo", v1alpha1.FileStatus{Path: "/w/a", Bytes: ptr.To(int64(8)), Lines: ptr.To(int64(2))},
		},
		"a part of one": {
			file(result.Completed, "read", "one\n", result.File{Lines: new(int64(1)), Truncated: true, NextOffset: new(int64(2)), Changed: true}),
			v1alpha1.PhaseSucceeded, "one\n\nThere is more: read on from offset 2.\n\nThe file was written to while it was read: this may never have been its content.",
			v1alpha1.FileStatus{Lines: ptr.To(int64(1)), Truncated: true, NextOffset: ptr.To(int64(2)), Changed: true},
		},
		"the compact copy of one": {
			file(result.Completed, "read", "one\n", result.File{Bytes: new(int64(9)), Truncated: true}),
			v1alpha1.PhaseSucceeded, "one\n\nOnly parts of this were found after the pod was lost: read the file again.",
			v1alpha1.FileStatus{Bytes: ptr.To(int64(9)), Truncated: true},
		},
		"a part in bytes": {
			file(result.Completed, "read", "on", result.File{Truncated: true, NextOffset: new(int64(2))}),
			v1alpha1.PhaseSucceeded, "on\n\nThere is more: read on from offset 2 with unit Bytes.",
			v1alpha1.FileStatus{Truncated: true, NextOffset: ptr.To(int64(2))},
		},
		"a binary file": {
			file(result.Completed, "/w/p.png is a binary file of 9 bytes", "\x89PNG\x00\xff\xff\xff\n", result.File{Lines: new(int64(1)), Truncated: true, NextOffset: new(int64(2)), Binary: true}),
			v1alpha1.PhaseSucceeded, "/w/p.png is a binary file of 9 bytes", v1alpha1.FileStatus{Lines: ptr.To(int64(1)), Truncated: true, NextOffset: ptr.To(int64(2)), Binary: true},
		},
		"a part of a binary file in bytes": {
			file(result.Completed, "/w/p.png is a binary file of 9 bytes", "\x89PNG\x00", result.File{Truncated: true, NextOffset: new(int64(5)), Binary: true}),
			v1alpha1.PhaseSucceeded, "/w/p.png is a binary file of 9 bytes\n\nThere is more: read on from offset 5 with unit Bytes.",
			v1alpha1.FileStatus{Truncated: true, NextOffset: ptr.To(int64(5)), Binary: true},
		},
		"an empty line": {
			file(result.Completed, "read 1 bytes of /w/a", "\n", result.File{Bytes: new(int64(1)), Lines: new(int64(1))}),
			v1alpha1.PhaseSucceeded, "Read 1 bytes of /w/a", v1alpha1.FileStatus{Bytes: ptr.To(int64(1)), Lines: ptr.To(int64(1))},
		},
		"blanks": {
			file(result.Completed, "read 4 bytes of /w/a", " \t\n\n", result.File{Bytes: new(int64(4)), Lines: new(int64(2))}),
			v1alpha1.PhaseSucceeded, "Read 4 bytes of /w/a", v1alpha1.FileStatus{Bytes: ptr.To(int64(4)), Lines: ptr.To(int64(2))},
		},
		"a part that isn't UTF-8": {
			file(result.Completed, "read", "caf\xe9\n", result.File{Lines: new(int64(1)), Truncated: true, NextOffset: new(int64(2))}),
			v1alpha1.PhaseSucceeded, "caf\uFFFD\n\nThere is more: read on from offset 2.\n\n" + result.NotUTF8,
			v1alpha1.FileStatus{Lines: ptr.To(int64(1)), Truncated: true, NextOffset: ptr.To(int64(2))},
		},
		"bytes that end inside a character": {
			file(result.Completed, "read", "\u00e9"[:1], result.File{Truncated: true, NextOffset: new(int64(1))}),
			v1alpha1.PhaseSucceeded, "\uFFFD\n\nThere is more: read on from offset 1 with unit Bytes.",
			v1alpha1.FileStatus{Truncated: true, NextOffset: ptr.To(int64(1))},
		},
		"a search": {
			file(result.Completed, "found", `{"path":"a"}`+"\n", result.File{Matches: new(int64(1)), Truncated: true, Skipped: result.SkippedFiles{Binary: 2, Denied: 3}}),
			v1alpha1.PhaseSucceeded, `{"path":"a"}` + "\n\nThere are more results than these: narrow the search.\n\nLeft out: 2 binary files, 3 that the policy denies.",
			v1alpha1.FileStatus{Matches: ptr.To(int64(1)), Truncated: true, Skipped: &v1alpha1.SkippedFiles{Binary: 2, Denied: 3}},
		},
		"a file that was written": {
			file(result.Completed, "wrote 3 bytes to /w/a", "", result.File{Bytes: new(int64(3)), Created: true}),
			v1alpha1.PhaseSucceeded, "Wrote 3 bytes to /w/a", v1alpha1.FileStatus{Bytes: ptr.To(int64(3)), Created: true},
		},
		"a file that isn't there": {
			file(result.FileNotFound, "There is no file.", "", result.File{}), v1alpha1.PhaseFailed, "There is no file.", v1alpha1.FileStatus{},
		},
	} {
		reported := outcome(tc.change)
		if err := reported.Validate(); err != nil {
			t.Fatalf("%s: no runner reports that: %v", name, err)
		}
		s := observed(bound).withResult(reported, 0)
		if s.Phase != tc.phase || s.Reason != reported.Outcome.Reason || s.ExitCode != nil || s.Output != tc.output {
			t.Errorf("%s: %s, %s, %v, output %q", name, s.Phase, s.Reason, s.ExitCode, s.Output)
		}
		if diff := cmp.Diff(&tc.want, s.File); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
