package guards

import (
	"encoding/base64"
	"slices"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
)

// maxWrite is how many bytes a call can carry to a file.
const maxWrite = 512 << 10

// fileFields says which fields an operation takes; needs are those that it can't do without.
var fileFields = map[v1alpha1.FileOperation]struct{ takes, needs []string }{
	v1alpha1.FileRead:  {takes: []string{"offset", "limit", "unit"}},
	v1alpha1.FileWrite: {takes: []string{"content", "contentBase64", "mode", "ifSHA256"}},
	v1alpha1.FileEdit:  {takes: []string{"oldString", "newString", "replaceAll", "edits", "ifSHA256"}},
	v1alpha1.FileList:  {takes: []string{"recursive", "maxResults", "respectGitIgnore"}},
	v1alpha1.FileGlob:  {takes: []string{"recursive", "maxResults", "respectGitIgnore"}, needs: []string{"pattern"}},
	v1alpha1.FileGrep: {
		takes: []string{"recursive", "literal", "glob", "maxResults", "contextLines", "respectGitIgnore"}, needs: []string{"pattern"},
	},
	v1alpha1.FileStat:          {},
	v1alpha1.FileDelete:        {takes: []string{"recursive"}},
	v1alpha1.FileMakeDirectory: {takes: []string{"mode"}},
	v1alpha1.FileMove:          {takes: []string{"overwrite"}, needs: []string{"destination"}},
}

// checkFile says what is wrong about a file action that no file system could make right. Which paths it may reach, the runner
// holds: it alone sees where a path leads.
func checkFile(in *Input) *Denial {
	file := in.Action.File
	fields, known := fileFields[file.Operation]
	if !known {
		return deny(v1alpha1.ReasonInvalidArguments,
			"file.operation %s is not known: use Read, Write, Edit, List, Glob, Grep, Stat, Delete, MakeDirectory or Move", quote(string(file.Operation)))
	}
	if file.Path == "" || strings.Contains(file.Path, "\x00") {
		return deny(v1alpha1.ReasonInvalidArguments, "file.path %s is empty or contains a NUL byte: name a file or directory", quote(file.Path))
	}
	for _, field := range fieldsOf(file) {
		switch needed := slices.Contains(fields.needs, field.name); {
		case needed && !field.isSet:
			return deny(v1alpha1.ReasonInvalidArguments, "file.%s is not set: %s needs it", field.name, file.Operation)
		case !needed && field.isSet && !slices.Contains(fields.takes, field.name):
			return deny(v1alpha1.ReasonInvalidArguments, "file.%s means nothing to %s: leave it out", field.name, file.Operation)
		}
	}
	switch file.Operation {
	case v1alpha1.FileWrite:
		return checkContent(file)
	case v1alpha1.FileEdit:
		return checkEdits(file)
	default:
		return nil
	}
}

// checkEdits looks at what an Edit is to change.
func checkEdits(file *v1alpha1.FileAction) *Denial {
	isOne := file.OldString != "" || file.NewString != "" || file.ReplaceAll
	switch {
	case isOne && len(file.Edits) > 0:
		return deny(v1alpha1.ReasonInvalidArguments, "file.edits and file.oldString, newString or replaceAll are set: use one of the two forms")
	case len(file.Edits) == 0 && file.OldString == "":
		return deny(v1alpha1.ReasonInvalidArguments, "file.oldString is not set: Edit needs it, or file.edits for several changes")
	}
	return nil
}

// checkContent looks at what a Write is to write.
func checkContent(file *v1alpha1.FileAction) *Denial {
	if (file.Content == nil) == (file.ContentBase64 == nil) {
		return deny(v1alpha1.ReasonInvalidArguments, "set exactly one of file.content and file.contentBase64; an empty file has the content \"\"")
	}
	content, err := FileContent(file)
	switch {
	case err != nil:
		return deny(v1alpha1.ReasonInvalidArguments, "file.contentBase64 is not base64: %s", err.Error())
	case len(content) > maxWrite:
		return deny(v1alpha1.ReasonInvalidArguments, "file.content has %d bytes, and a call carries %d at most: write it from a command", len(content), maxWrite)
	}
	return nil
}

// FileContent is what a Write writes.
func FileContent(file *v1alpha1.FileAction) ([]byte, error) {
	switch {
	case file.Content != nil:
		return []byte(*file.Content), nil
	case file.ContentBase64 != nil:
		return base64.StdEncoding.DecodeString(*file.ContentBase64)
	default:
		return nil, nil
	}
}

// optionalField is a field that not every operation has.
type optionalField struct {
	name  string
	isSet bool
}

func fieldsOf(file *v1alpha1.FileAction) []optionalField {
	return []optionalField{
		{"offset", file.Offset != nil}, {"limit", file.Limit != nil}, {"unit", file.Unit != ""},
		{"content", file.Content != nil}, {"contentBase64", file.ContentBase64 != nil}, {"mode", file.Mode != ""},
		{"ifSHA256", file.IfSHA256 != nil},
		{"oldString", file.OldString != ""}, {"newString", file.NewString != ""}, {"replaceAll", file.ReplaceAll},
		{"edits", len(file.Edits) > 0}, {"contextLines", file.ContextLines != nil}, {"respectGitIgnore", file.RespectGitIgnore},
		{"pattern", file.Pattern != ""}, {"literal", file.Literal}, {"glob", file.Glob != ""},
		{"recursive", file.Recursive}, {"maxResults", file.MaxResults != nil},
		{"destination", file.Destination != ""}, {"overwrite", file.Overwrite},
	}
}
