package tools

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
)

const (
	unitLines = "lines"
	unitBytes = "bytes"

	// The largest numbers of changes, of lines around a match and of results that the API allows.
	maxEdits        = 100
	maxContextLines = 20
	maxResults      = 1000

	// maxContent is how many bytes a call carries to a file.
	maxContent = 512 << 10

	aFile      = "absolute, ~/ for the home directory, or relative to working_dir"
	onlyIfSame = "fail unless the file has this sha256 of read_file"
	gitIgnored = "leave out what .gitignore names"
)

// fileMode and checksum match the permissions and checksums that the API accepts.
var (
	fileMode = regexp.MustCompile(`^0?[0-7]{3}$`)
	checksum = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ReadFile returns a file or a part of it.
var ReadFile = define(readFileSpec, Tool{
	Name: "read_file", view: Files, Hints: readOnly(),
	Description: func(f *Facts) string {
		return "Returns a text file or a part of it, at most 2000 lines if you set no limit. next_offset says where to read on. Images in a session are " +
			"shown, other binary files described. " + f.filesOfTools()
	},
})

func readFileSpec(a *arguments) *CallRequest {
	file := &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: a.requiredPath("the file to read")}
	lowest := int64(1)
	if a.choice("unit", "of offset and limit, lines if absent", unitLines, unitBytes) == unitBytes {
		file.Unit, lowest = v1alpha1.UnitBytes, 0
	}
	file.Offset = a.number("offset", "first line, from 1, or first byte, from 0", lowest, maxOffset)
	file.Limit = a.number("limit", "", 1, maxOffset)
	a.schema.Properties["offset"].Minimum = new(0.0)
	return a.fileCall(file)
}

// WriteFile writes a file whole.
var WriteFile = define(writeFileSpec, Tool{
	Name: "write_file", view: Files, Hints: changes(true, true),
	Description: func(f *Facts) string {
		return "Writes a file of at most 512 KiB, whole or not at all, and makes its parent directories. " + f.filesOfTools()
	},
})

func writeFileSpec(a *arguments) *CallRequest {
	file := &v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: a.requiredPath("the file to write")}
	content := a.raw("content", "the whole text")
	encoded := a.text("content_base64", "instead of content, for bytes")
	switch {
	case content != "" && encoded != "":
		a.fail("content_base64", "is not used together with content: send one of them")
	case encoded != "":
		file.ContentBase64 = a.base64(encoded)
	case a.has("content"):
		a.checkSize("content", len(content))
		file.Content = &content
	case !a.unknown && !a.failed["content_base64"]:
		a.fail("content", "is required: the text to write, which may be empty")
	}
	file.Mode = a.text("mode", "permissions, such as 0755")
	if file.Mode != "" && !fileMode.MatchString(file.Mode) {
		a.fail("mode", "must be permissions such as 0755, not %q", bounds.Text(file.Mode, 40))
	}
	create := a.isSet("create_only", "fail if the file exists")
	file.IfSHA256 = a.checksum()
	if create {
		if file.IfSHA256 != nil {
			a.fail("create_only", "is not used together with if_sha256, which is for a file that exists")
		}
		file.IfSHA256 = new("")
	}
	return a.fileCall(file)
}

// base64 reads bytes, and writes them as the API has them: without line breaks.
func (a *arguments) base64(encoded string) *string {
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		a.fail("content_base64", "is not base64: %s", err.Error())
	}
	a.checkSize("content_base64", len(content))
	return new(base64.StdEncoding.EncodeToString(content))
}

func (a *arguments) checkSize(name string, size int) {
	if size > maxContent {
		a.fail(name, "has %d bytes, and a call carries %d at most: write it from a command", size, maxContent)
	}
}

// EditFile replaces texts in a file.
var EditFile = define(editFileSpec, Tool{
	Name: "edit_file", view: Files, Hints: changes(true, false),
	Description: func(f *Facts) string {
		return "Replaces a text in a file, or several with edits: all of them or none. A text must be in the file exactly once, unless replace_all is " +
			"true. " + f.filesOfTools()
	},
})

func editFileSpec(a *arguments) *CallRequest {
	file := &v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: a.requiredPath("the file to edit")}
	one := a.replacement()
	file.OldString, file.NewString, file.ReplaceAll = one.OldString, one.NewString, one.ReplaceAll
	file.Edits = a.edits()
	file.IfSHA256 = a.checksum()
	switch isOne := one != (v1alpha1.TextReplacement{}); {
	case isOne && len(file.Edits) > 0:
		a.fail("edits", "is not used together with old_string, new_string and replace_all: put that change into edits too")
	case file.OldString == "" && len(file.Edits) == 0 && !a.unknown && !a.failed["edits"]:
		a.fail("old_string", "is required: the text to replace, exactly as it is in the file; or edits, for several changes")
	}
	return a.fileCall(file)
}

// replacement reads one change.
func (a *arguments) replacement() v1alpha1.TextReplacement {
	return v1alpha1.TextReplacement{
		OldString:  a.raw("old_string", "exactly as in the file, with enough around it to be unique"),
		NewString:  a.raw("new_string", "what to put in its place"),
		ReplaceAll: a.isSet("replace_all", ""),
	}
}

// editSpec reads one change of several.
func editSpec(a *arguments) v1alpha1.TextReplacement {
	one := a.replacement()
	a.require("old_string", one.OldString, "the text to replace, exactly as it is in the file")
	return one
}

// edits reads several changes. An empty list is absent.
func (a *arguments) edits() (all []v1alpha1.TextReplacement) {
	a.declare("edits", "several changes, one after the other, instead of old_string",
		jsonschema.Schema{Type: "array", MaxItems: new(maxEdits), Items: declared(editSpec).schema})
	var list []json.RawMessage
	if !a.read("edits", "a list of objects with old_string, new_string and replace_all", &list) {
		return nil
	}
	if len(list) > maxEdits {
		a.fail("edits", "has %d changes, and may have %d", len(list), maxEdits)
		return nil
	}
	for i, raw := range list {
		one, change := declared(editSpec), v1alpha1.TextReplacement{}
		if one.decode(raw) {
			change = editSpec(one)
		}
		for _, text := range one.errors {
			name, problem, _ := strings.Cut(text, ": ")
			a.fail(fmt.Sprintf("edits[%d]: %s", i, name), "%s", problem)
		}
		all = append(all, change)
	}
	return all
}

// ListFiles lists a directory, or finds files by name.
var ListFiles = define(listFilesSpec, Tool{
	Name: "list_files", view: Files, Hints: readOnly(),
	Description: func(f *Facts) string {
		return "Lists a directory, with sizes, or finds files by name with pattern; directories end with /. " + f.filesOfTools()
	},
})

// listFilesSpec builds a list, or with a pattern a search for names.
func listFilesSpec(a *arguments) *CallRequest {
	file := &v1alpha1.FileAction{
		Operation: v1alpha1.FileList, Path: a.searchPath("directory"),
		Pattern:          a.text("pattern", "find paths that match, such as **/*.go"),
		Recursive:        a.isSet("recursive", "list all that is below; with a pattern without /, match names at any depth"),
		RespectGitIgnore: a.isSet("respect_gitignore", gitIgnored), MaxResults: a.results(),
	}
	if file.Pattern != "" {
		file.Operation = v1alpha1.FileGlob
		if file.Recursive && !strings.Contains(file.Pattern, "/") {
			file.Pattern = "**/" + file.Pattern
		} else if file.Recursive && !strings.Contains(file.Pattern, "**") {
			a.fail("recursive", "is not used together with a pattern that has a / and no **: write **/ where directories may be in between")
		}
	}
	return a.fileCall(file)
}

// SearchFiles finds lines in files.
var SearchFiles = define(searchFilesSpec, Tool{
	Name: "search_files", view: Files, Hints: readOnly(),
	Description: func(f *Facts) string {
		return "Finds the lines that match an RE2 expression, in a file or below a directory. Returns them as path:number:line. " + f.filesOfTools()
	},
})

func searchFilesSpec(a *arguments) *CallRequest {
	file := &v1alpha1.FileAction{
		Operation: v1alpha1.FileGrep, Path: a.searchPath("file or directory"), Pattern: a.text("pattern", ""),
		Literal: a.isSet("literal", "pattern is a text, not an expression"), Glob: a.text("glob", "only in files that match, such as *.go"),
		ContextLines:     int32Of(a.number("context_lines", "lines before and after each match", 0, maxContextLines)),
		RespectGitIgnore: a.isSet("respect_gitignore", gitIgnored), MaxResults: a.results(),
	}
	a.require("pattern", file.Pattern, "the expression or text to search for")
	return a.fileCall(file)
}

// fileCall reads the arguments that tools have besides those of their file.
func (a *arguments) fileCall(file *v1alpha1.FileAction) *CallRequest {
	return a.call(v1alpha1.ToolCallSpec{File: file}, "")
}

func (a *arguments) requiredPath(what string) string {
	return a.require("path", a.text("path", aFile), what)
}

// searchPath reads what to search, the working directory if absent.
func (a *arguments) searchPath(what string) string {
	path := a.text("path", what+", "+aFile+"; working_dir if absent")
	return cmp.Or(path, ".")
}

func (a *arguments) results() *int32 {
	return int32Of(a.number("max_results", "1000 if absent", 1, maxResults))
}

// checksum reads the SHA-256 that a file must have, nil if absent.
func (a *arguments) checksum() *string {
	sum := strings.ToLower(a.text("if_sha256", onlyIfSame))
	if sum == "" {
		return nil
	}
	if !checksum.MatchString(sum) {
		a.fail("if_sha256", "must be the sha256 of read_file, which has 64 hexadecimal digits, not %q", bounds.Text(sum, 80))
	}
	return &sum
}
