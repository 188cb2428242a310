package mcpserver

import (
	"encoding/json"
	"fmt"
	"slices"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	unitLines = "lines"
	unitBytes = "bytes"
)

// readFileSpec builds a call from the arguments of read_file.
func readFileSpec(raw []byte) (*callRequest, error) {
	a, r, file := parseFile(raw, v1alpha1.FileRead, "offset", "limit", "unit")
	file.Path = a.required("path", "the file to read")
	lowest := int64(1)
	if a.choice("unit", unitLines, unitBytes) == unitBytes {
		file.Unit, lowest = v1alpha1.UnitBytes, 0
	}
	file.Offset, file.Limit = a.number("offset", lowest, maxOffset), a.number("limit", 1, maxOffset)
	return r, a.err()
}

// writeFileSpec builds a call from the arguments of write_file.
func writeFileSpec(raw []byte) (*callRequest, error) {
	a, r, file := parseFile(raw, v1alpha1.FileWrite, "content", "content_base64", "mode", "create_only", "if_sha256")
	file.Path = a.required("path", "the file to write")
	content, encoded := a.raw("content"), a.text("content_base64")
	switch {
	case content != "" && encoded != "":
		a.fail("content_base64", "is not used together with content: send one of them")
	case encoded != "":
		file.ContentBase64 = &encoded
	case a.has("content"):
		file.Content = &content
	default:
		a.fail("content", "is required: the text to write, which may be empty")
	}
	file.Mode, file.IfSHA256 = a.text("mode"), a.checksum()
	if create := a.flag("create_only"); create != nil && *create {
		if file.IfSHA256 != nil {
			a.fail("create_only", "is not used together with if_sha256, which is for a file that exists")
		}
		file.IfSHA256 = new("")
	}
	return r, a.err()
}

// editFileSpec builds a call from the arguments of edit_file.
func editFileSpec(raw []byte) (*callRequest, error) {
	a, r, file := parseFile(raw, v1alpha1.FileEdit, "old_string", "new_string", "replace_all", "edits", "if_sha256")
	file.Path, file.IfSHA256 = a.required("path", "the file to edit"), a.checksum()
	file.OldString, file.NewString, file.ReplaceAll = a.raw("old_string"), a.raw("new_string"), a.isSet("replace_all")
	file.Edits = a.edits()
	switch isOne := file.OldString != "" || file.NewString != "" || file.ReplaceAll; {
	case isOne && len(file.Edits) > 0:
		a.fail("edits", "is not used together with old_string, new_string and replace_all: put that change into edits too")
	case file.OldString == "" && !a.has("edits"):
		a.fail("old_string", "is required: the text to replace, exactly as it is in the file; or edits, for several changes")
	}
	return r, a.err()
}

// maxEdits is the largest number of changes that the API allows.
const maxEdits = 100

// edits reads several changes.
func (a *arguments) edits() (all []v1alpha1.TextReplacement) {
	var list []json.RawMessage
	if !a.read("edits", "a list of objects with old_string, new_string and replace_all", &list) {
		return nil
	}
	if len(list) == 0 || len(list) > maxEdits {
		a.fail("edits", "must have from 1 to %d changes, not %d", maxEdits, len(list))
		return nil
	}
	for i, raw := range list {
		one := parse(raw, "old_string", "new_string", "replace_all")
		all = append(all, v1alpha1.TextReplacement{OldString: one.raw("old_string"), NewString: one.raw("new_string"), ReplaceAll: one.isSet("replace_all")})
		if !one.unreadable && all[i].OldString == "" {
			one.fail("old_string", "is required: the text to replace, exactly as it is in the file")
		}
		for _, text := range one.errors {
			a.fail(fmt.Sprintf("edits[%d]", i), "%s", text)
		}
	}
	return all
}

// listFilesSpec builds a call from the arguments of list_files: a list, or with a pattern a search for names.
func listFilesSpec(raw []byte) (*callRequest, error) {
	a, r, file := parseFile(raw, v1alpha1.FileList, "pattern", "recursive", "respect_gitignore", "max_results")
	file.Path, file.MaxResults = a.directory(), a.results()
	file.Recursive, file.RespectGitIgnore = a.isSet("recursive"), a.isSet("respect_gitignore")
	if file.Pattern = a.text("pattern"); file.Pattern != "" {
		file.Operation = v1alpha1.FileGlob
		if file.Recursive {
			a.fail("recursive", "is not used together with pattern: write **/ before the pattern to find files in all directories below")
		}
	}
	return r, a.err()
}

// searchFilesSpec builds a call from the arguments of search_files.
func searchFilesSpec(raw []byte) (*callRequest, error) {
	a, r, file := parseFile(raw, v1alpha1.FileGrep, "pattern", "literal", "glob", "context_lines", "respect_gitignore", "max_results")
	file.Path, file.MaxResults = a.directory(), a.results()
	file.Pattern = a.required("pattern", "the expression or text to search for")
	file.Literal, file.Glob, file.RespectGitIgnore = a.isSet("literal"), a.text("glob"), a.isSet("respect_gitignore")
	if lines := a.number("context_lines", 0, maxContextLines); lines != nil {
		file.ContextLines = new(int32(*lines))
	}
	return r, a.err()
}

// parseFile reads the arguments that all file tools have.
func parseFile(raw []byte, operation v1alpha1.FileOperation, own ...string) (*arguments, *callRequest, *v1alpha1.FileAction) {
	a := parse(raw, slices.Concat([]string{"path"}, own, commonArguments)...)
	r := &callRequest{spec: v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: operation}}}
	a.common(r)
	return a, r, r.spec.File
}

// directory reads the directory to search, the working directory if absent.
func (a *arguments) directory() string {
	if path := a.text("path"); path != "" {
		return path
	}
	return "."
}

// maxContextLines is how many lines around a match the API allows at most.
const maxContextLines = 20

// maxResults is the largest number of results that the API allows.
const maxResults = 1000

func (a *arguments) results() *int32 {
	most := a.number("max_results", 1, maxResults)
	if most == nil {
		return nil
	}
	return new(int32(*most))
}

// checksum reads the SHA-256 that a file must have, nil if absent.
func (a *arguments) checksum() *string {
	if sum := a.text("if_sha256"); sum != "" {
		return &sum
	}
	return nil
}

// isSet reports whether a flag is true.
func (a *arguments) isSet(name string) bool {
	value := a.flag(name)
	return value != nil && *value
}
