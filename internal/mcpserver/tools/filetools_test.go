package tools

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestFileArguments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		read func(*arguments) *CallRequest
		raw  string
		want v1alpha1.FileAction
	}{
		"a file":            {readFileSpec, `{"path":"a"}`, v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a"}},
		"some lines":        {readFileSpec, `{"path":"a","offset":3,"limit":"20","unit":"Lines"}`, v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a", Offset: new(int64(3)), Limit: new(int64(20))}},
		"the first byte":    {readFileSpec, `{"path":"a","offset":0,"limit":1,"unit":"bytes"}`, v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a", Offset: new(int64(0)), Limit: new(int64(1)), Unit: v1alpha1.UnitBytes}},
		"a text to write":   {writeFileSpec, `{"path":"a","content":"x\u0000","content_base64":"","if_sha256":""}`, v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new("x\x00")}},
		"an empty file":     {writeFileSpec, `{"path":"a","content":""}`, v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new("")}},
		"bytes":             {writeFileSpec, `{"path":"a","content":"","content_base64":"AA==","mode":"0600"}`, v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", ContentBase64: new("AA=="), Mode: "0600"}},
		"a new file only":   {writeFileSpec, `{"path":"a","content":"x","create_only":true}`, v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new("x"), IfSHA256: new("")}},
		"a known file only": {writeFileSpec, `{"path":"a","content":"x","create_only":"False","if_sha256":"` + strings.Repeat("Ab", 32) + `"}`, v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new("x"), IfSHA256: new(strings.Repeat("ab", 32))}},
		"lines of base64":   {writeFileSpec, `{"path":"a","content_base64":"AA\nA=\n"}`, v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", ContentBase64: new("AAA=")}},
		"no several edits":  {editFileSpec, `{"path":"a","old_string":"b","replace_all":"True","edits":[]}`, v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a", OldString: "b", ReplaceAll: true}},
		"an edit":           {editFileSpec, `{"path":"a","old_string":"b","new_string":"c","replace_all":true}`, v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a", OldString: "b", NewString: "c", ReplaceAll: true}},
		"a text to remove":  {editFileSpec, `{"path":"a","old_string":"b"}`, v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a", OldString: "b"}},
		"several edits": {editFileSpec, `{"path":"a","edits":[{"old_string":"b","new_string":"c"},{"old_string":"d","replace_all":true}]}`, v1alpha1.FileAction{
			Operation: v1alpha1.FileEdit, Path: "a", Edits: []v1alpha1.TextReplacement{{OldString: "b", NewString: "c"}, {OldString: "d", ReplaceAll: true}},
		}},
		"what git doesn't ignore": {listFilesSpec, `{"respect_gitignore":true}`, v1alpha1.FileAction{Operation: v1alpha1.FileList, Path: ".", RespectGitIgnore: true}},
		"lines around lines": {searchFilesSpec, `{"pattern":"x","context_lines":3,"respect_gitignore":true}`, v1alpha1.FileAction{
			Operation: v1alpha1.FileGrep, Path: ".", Pattern: "x", ContextLines: new(int32(3)), RespectGitIgnore: true,
		}},
		"where it starts":   {listFilesSpec, `{}`, v1alpha1.FileAction{Operation: v1alpha1.FileList, Path: "."}},
		"a tree":            {listFilesSpec, `{"path":"/a","recursive":true,"max_results":7}`, v1alpha1.FileAction{Operation: v1alpha1.FileList, Path: "/a", Recursive: true, MaxResults: new(int32(7))}},
		"names below":       {listFilesSpec, `{"pattern":"*.go","recursive":true}`, v1alpha1.FileAction{Operation: v1alpha1.FileGlob, Path: ".", Pattern: "**/*.go", Recursive: true}},
		"names, of a path":  {listFilesSpec, `{"pattern":"a/**/*.go","recursive":true}`, v1alpha1.FileAction{Operation: v1alpha1.FileGlob, Path: ".", Pattern: "a/**/*.go", Recursive: true}},
		"names":             {listFilesSpec, `{"pattern":"**/*.go","recursive":false}`, v1alpha1.FileAction{Operation: v1alpha1.FileGlob, Path: ".", Pattern: "**/*.go"}},
		"lines with a text": {searchFilesSpec, `{"pattern":"a.b","literal":true,"glob":"*.md"}`, v1alpha1.FileAction{Operation: v1alpha1.FileGrep, Path: ".", Pattern: "a.b", Literal: true, Glob: "*.md"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse([]byte(test.raw), test.read)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v1alpha1.ToolCallSpec{File: &test.want}, got.Spec); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestInvalidFileArguments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		read func(*arguments) *CallRequest
		raw  string
		want string
	}{
		"no path":                    {readFileSpec, `{}`, "path: is required"},
		"a path with a NUL":          {readFileSpec, `{"path":"a\u0000"}`, "path: must not contain a NUL"},
		"line 0":                     {readFileSpec, `{"path":"a","offset":0}`, "offset: must be a whole number, at least 1"},
		"a negative byte":            {readFileSpec, `{"path":"a","offset":-1,"unit":"bytes"}`, "offset: must be a whole number, at least 0"},
		"an offset beyond precision": {readFileSpec, `{"path":"a","offset":9007199254740993}`, "offset: must be a whole number"},
		"another unit":               {readFileSpec, `{"path":"a","unit":"pages"}`, `unit: must be lines or bytes, not "pages"`},
		"nothing to write":           {writeFileSpec, `{"path":"a"}`, "content: is required"},
		"a null to write":            {writeFileSpec, `{"path":"a","content":null}`, "content: is required"},
		"both contents":              {writeFileSpec, `{"path":"a","content":"x","content_base64":"eA=="}`, "content_base64: is not used together with content"},
		"new and known":              {writeFileSpec, `{"path":"a","content":"x","create_only":true,"if_sha256":"` + strings.Repeat("ab", 32) + `"}`, "create_only: is not used together with if_sha256"},
		"nothing to replace":         {editFileSpec, `{"path":"a","old_string":"","new_string":"x"}`, "old_string: is required"},
		"two forms of an edit":       {editFileSpec, `{"path":"a","old_string":"x","edits":[{"old_string":"y"}]}`, "edits: is not used together with old_string"},
		"no edits":                   {editFileSpec, `{"path":"a","edits":[]}`, "old_string: is required"},
		"edits that say nothing":     {editFileSpec, `{"path":"a","edits":""}`, "old_string: is required"},
		"edits that aren't":          {editFileSpec, `{"path":"a","edits":1}`, "edits: must be a list of objects"},
		"too many edits":             {editFileSpec, `{"path":"a","edits":[1` + strings.Repeat(",1", 100) + `]}`, "edits: has 101 changes, and may have 100"},
		"a number to replace":        {editFileSpec, `{"path":"a","old_string":1}`, "old_string: must be a string, not a number"},
		"an API's name":              {editFileSpec, `{"path":"a","oldString":"x"}`, "oldString: is unknown"},
		"a list to write":            {writeFileSpec, `{"path":"a","content":[]}`, "content: must be a string, not a list"},
		"a list in its place":        {editFileSpec, `{"path":"a","old_string":"b","new_string":[]}`, "new_string: must be a string, not a list"},
		"a number to write":          {writeFileSpec, `{"path":"a","content_base64":1}`, "content_base64: must be a string, not a number"},
		"no base64":                  {writeFileSpec, `{"path":"a","content_base64":"!"}`, "content_base64: is not base64"},
		"too large a text":           {writeFileSpec, `{"path":"a","content":"` + strings.Repeat("é", 300<<10) + `"}`, "content: has 614400 bytes, and a call carries 524288 at most: write it from a command"},
		"too many bytes":             {writeFileSpec, `{"path":"a","content_base64":"` + strings.Repeat("AAAA", 200<<10) + `"}`, "content_base64: has 614400 bytes, and a call carries 524288 at most: write it from a command"},
		"no permissions":             {writeFileSpec, `{"path":"a","content":"","mode":"u+x"}`, `mode: must be permissions such as 0755, not "u+x"`},
		"no permissions' NUL":        {writeFileSpec, `{"path":"a","content":"","mode":"\u0000"}`, "mode: must not contain a NUL"},
		"no checksum":                {writeFileSpec, `{"path":"a","content":"","if_sha256":"ab"}`, "if_sha256: must be the sha256 of read_file"},
		"a long path":                {readFileSpec, `{"path":"` + strings.Repeat("x", 4097) + `"}`, "path: has 4097 characters, and may have 4096"},
		"a long text to replace":     {editFileSpec, `{"path":"a","edits":[{"old_string":"` + strings.Repeat("x", 1+256<<10) + `"}]}`, "edits[0]: old_string: has 262145 characters"},
		"an edit of nothing":         {editFileSpec, `{"path":"a","edits":[{"old_string":"x"},{"new_string":"y"}]}`, "edits[1]: old_string: is required"},
		"an edit that isn't one":     {editFileSpec, `{"path":"a","edits":["x"]}`, "edits[0]: arguments: must be a JSON object"},
		"too many lines around":      {searchFilesSpec, `{"pattern":"x","context_lines":21}`, "context_lines: must be"},
		"recursive names":            {listFilesSpec, `{"pattern":"a/*.go","recursive":true}`, "recursive: is not used together with a pattern"},
		"too many results":           {searchFilesSpec, `{"pattern":"x","max_results":1001}`, "max_results: must be a whole number, at least 1 and at most 1000"},
		"nothing to search for":      {searchFilesSpec, `{"path":"a"}`, "pattern: is required"},
		"a session and environment":  {readFileSpec, `{"path":"a","session":"s","environment":"e"}`, "environment: is not used together with session"},
		"hosts":                      {readFileSpec, `{"path":"a","network_hosts":["a.example.com"]}`, "network_hosts: is unknown"},
		"standard input":             {readFileSpec, `{"path":"a","stdin":"x"}`, "stdin: is unknown"},
	} {
		if _, err := parse([]byte(test.raw), test.read); err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q alone", name, err, test.want)
		}
	}
}

// Any arguments give one operation on a file, or an error.
func FuzzFileSpecs(f *testing.F) {
	for _, raw := range []string{
		`{"path":"a","offset":1,"limit":2}`, `{"path":"a","content":""}`, `{"path":"a","old_string":"b"}`, `{"pattern":"*"}`, `{"request_id":"x","session":"s"}`, `[]`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for name, read := range map[string]func(*arguments) *CallRequest{
			"read": readFileSpec, "write": writeFileSpec, "edit": editFileSpec, "list": listFilesSpec, "search": searchFilesSpec,
		} {
			r, err := parse(raw, read)
			if err != nil {
				if err.Error() == "" {
					t.Errorf("%s: an error without a message", name)
				}
				continue
			}
			file := r.Spec.File
			if file == nil || file.Path == "" || strings.ContainsRune(file.Path, 0) || r.Spec.Shell != nil || r.Spec.Structured != nil || r.Spec.Code != nil {
				t.Fatalf("%s: not one operation: %+v", name, r.Spec)
			}
			if reads := name == "read" || name == "list" || name == "search"; reads == file.Operation.Writes() {
				t.Errorf("%s does %s", name, file.Operation)
			}
			if (file.Offset != nil && *file.Offset < 0) || (file.Limit != nil && *file.Limit < 1) || r.Spec.SessionRef != nil && r.Spec.EnvironmentRef != nil {
				t.Errorf("%s: %+v", name, r.Spec)
			}
		}
	})
}
