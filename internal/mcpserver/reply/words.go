package reply

import (
	"regexp"
	"strings"
)

// ownNames are the names of the API of what this server calls otherwise.
var ownNames = map[string]string{
	"oldString": "old_string", "newString": "new_string", "replaceAll": "replace_all", "contentBase64": "content_base64", "ifSHA256": "if_sha256",
	"maxResults": "max_results", "contextLines": "context_lines", "respectGitIgnore": "respect_gitignore", "workingDir": "working_dir",
	"timeoutSeconds": "timeout_seconds", "networkAccess": "network", "sessionRef": "session", "environmentRef": "environment",
	"network.hosts": "network_hosts",
}

// ownPhrases are those that take more than one word.
var ownPhrases = strings.NewReplacer(
	"a structured call, with binary and args", "run_program", "a structured call", "run_program", "a shell call", "run_command", "a code call", "run_code",
	"unit Bytes", "unit bytes", "unit Lines", "unit lines", "use List", "use list_files", "use Glob", "use list_files with pattern", "use Grep", "use search_files",
	"use Read", "use read_file", "use Write", "use write_file", "use Edit", "use edit_file", "the binary is empty", "program is empty",
	"set code.networkAccess of the call", "set network", "the call's network.hosts", "network_hosts", "leave hosts out", "leave network_hosts out",
	"List or Glob", "list_files", "what Read returns", "what read_file returns", "which Read shows", "which read_file shows",
	"Stat shows the file's mode", "ls -l shows the file's mode", "A structured call's binary", "program",
	"; binary is one program", "; program is one program", ": binary ", ": program ",
)

var (
	quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	// word matches a word with the brackets and marks around it.
	word = regexp.MustCompile(`([(\[]?)(?:spec\.|file\.)?([A-Za-z0-9]+(?:\.[a-z]+)?)((?:\[\d+\])?(?:\.[a-zA-Z]+)?[,;:.)\]]*)$`)
	// moreOfStream is the line in which the operator says how to read the rest of a stream.
	moreOfStream = regexp.MustCompile(`(More of (?:stdout|stderr) \(\d+ bytes in all\)): kubectl toolcall logs (\S+) [^\n]*--stream (stdout|stderr), [^\n]*`)
)

// OwnWords calls tools and arguments in a message of the operator as this server does. What is quoted stays: it is the caller's own.
func OwnWords(message string) string {
	var b strings.Builder
	at := 0
	for _, quote := range quotation.FindAllStringIndex(message, -1) {
		b.WriteString(renamed(message[at:quote[0]]))
		b.WriteString(message[quote[0]:quote[1]])
		at = quote[1]
	}
	b.WriteString(renamed(message[at:]))
	return b.String()
}

// renamed replaces names in a text without quotations.
func renamed(text string) string {
	words := strings.Split(ownPhrases.Replace(text), " ")
	for i, one := range words {
		words[i] = renamedWord(one)
	}
	return strings.Join(words, " ")
}

func renamedWord(one string) string {
	m := word.FindStringSubmatch(one)
	if m == nil || m[0] != one {
		return one
	}
	name, known := ownNames[m[2]]
	switch {
	case known:
		return m[1] + name + renamedEnd(m[3])
	case strings.HasPrefix(strings.TrimLeft(one, "(["), "file."):
		return m[1] + m[2] + renamedEnd(m[3])
	default:
		return one
	}
}

// renamedEnd replaces the name of a field in an element of a list, as in edits[1].oldString.
func renamedEnd(end string) string {
	for name, own := range ownNames {
		end = strings.ReplaceAll(end, "."+name, "."+own)
	}
	return end
}

// ownEnd replaces what the operator says behind the output of a command: how to read the rest, and how to reach a host.
func ownEnd(output string, hasDeniedHosts bool) string {
	output = moreOfStream.ReplaceAllString(output, "$1: read_output with call $2 and stream $3")
	if at := strings.LastIndex(output, "the call's network.hosts"); hasDeniedHosts && at >= 0 {
		output = output[:at] + ownPhrases.Replace(output[at:])
	}
	return output
}
