package guards

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestFileActionsThatNoFileSystemCouldMakeRight(t *testing.T) {
	t.Parallel()
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen})
	if err != nil {
		t.Fatal(err)
	}
	large := base64.StdEncoding.EncodeToString(make([]byte, maxWrite+1))
	for _, c := range []struct {
		file v1alpha1.FileAction
		says string // Empty for one that is right.
	}{
		{v1alpha1.FileAction{Operation: "Chmod", Path: "a"}, "Read, Write"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileRead}, "file.path"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a\x00b"}, "NUL"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a", Content: ptr("")}, "file.content means nothing to Read"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a", Offset: ptr(int64(2)), Limit: ptr(int64(1)), Unit: v1alpha1.UnitBytes}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a"}, "exactly one"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: ptr(""), ContentBase64: ptr("")}, "exactly one"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", ContentBase64: ptr("?")}, "not base64"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", ContentBase64: &large}, "524289 bytes"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: ptr(strings.Repeat("é", maxWrite))}, "has 1048576 bytes, and a call carries 524288 at most: write it from a command"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: ptr("")}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a", NewString: "b"}, "file.oldString is not set"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a", OldString: "b"}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a", Edits: []v1alpha1.TextReplacement{{OldString: "b"}, {OldString: "c", NewString: "d"}}}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a", ReplaceAll: true, Edits: []v1alpha1.TextReplacement{{OldString: "b"}}}, "one of the two forms"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileGrep, Path: ".", Pattern: "a", ContextLines: ptr(int32(2)), RespectGitIgnore: true}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileList, Path: ".", ContextLines: ptr(int32(2))}, "file.contextLines means nothing to List"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileGlob, Path: "."}, "file.pattern is not set"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileGlob, Path: ".", Pattern: "*", Literal: true}, "file.literal means nothing to Glob"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileGrep, Path: ".", Pattern: "a", Literal: true, Glob: "*.go", MaxResults: ptr(int32(3))}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileList, Path: ".", Recursive: true}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileGlob, Path: ".", Pattern: "*", Recursive: true}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileGrep, Path: ".", Pattern: "a", Recursive: true}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileStat, Path: ".", Recursive: true}, "file.recursive means nothing to Stat"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileDelete, Path: "a", Recursive: true}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileMakeDirectory, Path: "a", Mode: "0700"}, ""},
		{v1alpha1.FileAction{Operation: v1alpha1.FileMove, Path: "a"}, "file.destination is not set"},
		{v1alpha1.FileAction{Operation: v1alpha1.FileMove, Path: "a", Destination: "b", Overwrite: true}, ""},
	} {
		action, denial := Map(&v1alpha1.ToolCallSpec{File: &c.file})
		if denial == nil {
			denial = policy.Check(Input{Action: action})
		}
		switch {
		case c.says == "" && denial != nil:
			t.Errorf("%s %+v is denied: %s", c.file.Operation, c.file, denial.Message)
		case c.says != "" && (denial == nil || denial.Reason != v1alpha1.ReasonInvalidArguments || !strings.Contains(denial.Message, c.says)):
			t.Errorf("%s: want %q, got %+v", c.file.Operation, c.says, denial)
		}
	}
}

func TestAFileActionTakesNoInputOfAProcess(t *testing.T) {
	t.Parallel()
	read := v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a"}
	for _, spec := range []v1alpha1.ToolCallSpec{{File: &read, Stdin: "x"}, {File: &read, Background: true}} {
		if _, denial := Map(&spec); denial == nil || denial.Reason != v1alpha1.ReasonInvalidArguments {
			t.Errorf("got %+v", denial)
		}
	}
}

func TestABoundOfCodeIsNoneOfAFileAction(t *testing.T) {
	t.Parallel()
	policy, err := Compile(specFrom(t, `{"access":"Open","code":{"maxExecutionMilliseconds":5000}}`))
	if err != nil {
		t.Fatal(err)
	}
	action, _ := Map(&v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a"}, TimeoutSeconds: ptr(int32(30))})
	if denial := policy.Check(Input{Action: action}); denial != nil {
		t.Errorf("got %+v", denial)
	}
}

// Who may read can be another than who may write.
func TestFileActionsAreTwoTools(t *testing.T) {
	t.Parallel()
	policy, err := Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	for operation, fields := range fileFields {
		file := &v1alpha1.FileAction{Operation: operation, Path: "a", Destination: "b", OldString: "c", Pattern: "d"}
		if !slices.Contains(fields.needs, "destination") {
			file.Destination = ""
		}
		if !slices.Contains(fields.takes, "oldString") {
			file.OldString = ""
		}
		if !slices.Contains(fields.needs, "pattern") {
			file.Pattern = ""
		}
		if operation == v1alpha1.FileWrite {
			file.Content = ptr("")
		}
		want := "file.write"
		switch operation {
		case v1alpha1.FileRead, v1alpha1.FileList, v1alpha1.FileGlob, v1alpha1.FileGrep, v1alpha1.FileStat:
			want = "file.read"
		}
		var asked string
		denial := policy.Check(Input{
			Action: &Action{Type: v1alpha1.ActionFile, File: file}, Requester: &v1alpha1.Requester{Username: "agent"},
			MayUse: func(tool string) (bool, error) { asked = tool; return false, nil },
		})
		if asked != want || denial == nil || denial.Reason != v1alpha1.ReasonAgentNotAllowed {
			t.Errorf("%s asks for %q, and is denied with %+v", operation, asked, denial)
		}
	}
}

func TestRulesForFilesThatCannotBeApplied(t *testing.T) {
	t.Parallel()
	for says, files := range map[string]v1alpha1.FilesPolicy{
		"spec.files.deniedPaths":   {DeniedPaths: []string{".git", "["}},
		"names nothing":            {DeniedPaths: []string{"/"}},
		"spec.files.maxReadBytes":  {MaxReadBytes: ptr(int64(0))},
		"spec.files.maxWriteBytes": {MaxWriteBytes: ptr(int64(limitFileBytes + 1))},
	} {
		if _, err := Compile(&v1alpha1.ExecutionPolicySpec{Files: &files}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	if _, err := Compile(&v1alpha1.ExecutionPolicySpec{Files: &v1alpha1.FilesPolicy{
		DeniedPaths: []string{".git", "/workspace/secrets/**", "*.pem"}, MaxReadBytes: ptr(int64(1)), MaxWriteBytes: ptr(int64(limitFileBytes)),
	}}); err != nil {
		t.Error(err)
	}
}
