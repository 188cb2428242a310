package mcpserver

import (
	"maps"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func readFileTool(f *facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "read_file", Title: "Read a file",
		Description: "Returns a text file or a part of it, 2000 lines if you don't say more. next_offset in the result says where to read on; " +
			"sha256 identifies the content of a file that was returned whole. A PNG, JPEG, GIF or WebP image in a session is shown as an image; other " +
			"binary files are described. It needs no program in the environment. " + f.filesOfTools(),
		InputSchema: fileInput(map[string]*jsonschema.Schema{
			"path":   text("file, absolute, in the home directory with ~/, or relative to working_dir"),
			"offset": whole("first line, counted from 1; or first byte, counted from 0", 0),
			"limit":  whole("how many lines or bytes", 1),
			"unit":   word("what offset and limit count; lines if absent", unitLines, unitBytes),
		}, "path"),
		OutputSchema: callOutput(), Annotations: readOnly(),
	}
}

func writeFileTool(f *facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "write_file", Title: "Write a file",
		Description: "Writes a file of at most 512 KiB, whole or not at all, and makes its parent directories. It replaces a file that is there " +
			"unless create_only is true. " + f.filesOfTools(),
		InputSchema: fileInput(map[string]*jsonschema.Schema{
			"path":           text("file, absolute, in the home directory with ~/, or relative to working_dir"),
			"content":        text("all of the text of the file"),
			"content_base64": text("instead of content: the bytes of the file in base64"),
			"mode":           text("permissions in octal digits, such as 0755; those of the file that is replaced, or 0644, if absent"),
			"create_only":    flag("fail if the file exists"),
			"if_sha256":      text("fail unless the file has this SHA-256 now, as read_file returned it"),
		}, "path"),
		OutputSchema: callOutput(), Annotations: changes(true, true),
	}
}

func editFileTool(f *facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "edit_file", Title: "Edit a file",
		Description: "Replaces a text in a file, or several with edits: then all of them are replaced, or none. A text must be in the file exactly " +
			"once, unless replace_all is true; a failure says how often it is there. The file keeps its line ends. " + f.filesOfTools(),
		InputSchema: fileInput(map[string]*jsonschema.Schema{
			"path":        text("file, absolute, in the home directory with ~/, or relative to working_dir"),
			"old_string":  oldString(),
			"new_string":  newString(),
			"replace_all": flag("replace it wherever it is"),
			"edits": {
				Type: "array", MinItems: new(1), MaxItems: new(maxEdits),
				Description: "instead of old_string, new_string and replace_all: several changes, one after the other; all of them are made, or none",
				Items: input(map[string]*jsonschema.Schema{
					"old_string": oldString(), "new_string": newString(), "replace_all": flag("replace it wherever it is"),
				}, "old_string"),
			},
			"if_sha256": text("fail unless the file has this SHA-256 now, as read_file returned it"),
		}, "path"),
		OutputSchema: callOutput(), Annotations: changes(true, false),
	}
}

func oldString() *jsonschema.Schema {
	return text("text to replace, exactly as it is in the file, with enough around it to be unique")
}

func newString() *jsonschema.Schema {
	return text("text to put in its place; empty or absent to remove it")
}

func listFilesTool(f *facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "list_files", Title: "List files",
		Description: "Lists a directory, or finds files by name with pattern. Returns one JSON object a line, with path and type. " + f.filesOfTools(),
		InputSchema: fileInput(map[string]*jsonschema.Schema{
			"path":              text("directory, absolute, in the home directory with ~/, or relative to working_dir; working_dir if absent"),
			"pattern":           text("find files whose path below the directory matches, such as **/*.go"),
			"recursive":         flag("list directories below, too"),
			"respect_gitignore": respectGitIgnore(),
			"max_results":       results(),
		}),
		OutputSchema: callOutput(), Annotations: readOnly(),
	}
}

func searchFilesTool(f *facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "search_files", Title: "Search in files",
		Description: "Finds the lines that match an RE2 expression, in a file or in all files below a directory. Returns one JSON object a line, " +
			"with path, lineNumber, line, and with context_lines before and after. " + f.filesOfTools(),
		InputSchema: fileInput(map[string]*jsonschema.Schema{
			"path":              text("file or directory, absolute, in the home directory with ~/, or relative to working_dir; working_dir if absent"),
			"pattern":           text("RE2 expression, or a text if literal is true"),
			"literal":           flag("pattern is a text"),
			"glob":              text("search only in files that match, such as *.go"),
			"context_lines":     contextLines(),
			"respect_gitignore": respectGitIgnore(),
			"max_results":       results(),
		}, "pattern"),
		OutputSchema: callOutput(), Annotations: readOnly(),
	}
}

func respectGitIgnore() *jsonschema.Schema { return flag("leave out what .gitignore files name") }

func contextLines() *jsonschema.Schema {
	schema := whole("how many lines before and after each match to return with it; 0 if absent", 0)
	schema.Maximum = new(float64(maxContextLines))
	return schema
}

func results() *jsonschema.Schema {
	schema := whole("at most so many results; 1000 if absent", 1)
	schema.Maximum = new(float64(maxResults))
	return schema
}

// fileInput returns the schema of the arguments of a file tool.
func fileInput(own map[string]*jsonschema.Schema, required ...string) *jsonschema.Schema {
	all := commonInput()
	maps.Copy(all, own)
	return input(all, required...)
}
