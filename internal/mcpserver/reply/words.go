package reply

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ownNames are the names of the API of what this server calls otherwise. Without "spec.", some of those would be fields of policies.
var ownNames = map[string]string{
	"oldString": "old_string", "newString": "new_string", "replaceAll": "replace_all", "contentBase64": "content_base64", "ifSHA256": "if_sha256",
	"maxResults": "max_results", "contextLines": "context_lines", "respectGitIgnore": "respect_gitignore", "workingDir": "working_dir",
	"timeoutSeconds": "timeout_seconds", "networkAccess": "network", "sessionRef": "session", "environmentRef": "environment",
	"network.hosts": "network_hosts", "environmentRef.name": "environment", "sessionRef.name": "session",
	"spec.shell.command": "command", "spec.structured.binary": "program", "spec.structured.args": "args",
	"spec.code.language": "language", "spec.code.source": "code", "spec.code.networkAccess": "network",
	"spec.env": "env", "spec.stdin": "stdin", "spec.collect": "collect", "spec.background": "background",
	"file.path": "path", "file.content": "content", "file.mode": "mode", "file.edits": "edits", "file.pattern": "pattern", "file.glob": "glob",
	"file.literal": "literal", "file.recursive": "recursive", "file.offset": "offset", "file.limit": "limit", "file.unit": "unit",
	"spec.workspace": "workspace", "spec.workspace.size": "workspace", "idleTimeoutSeconds": "idle_timeout_seconds",
	"maxLifetimeSeconds": "max_lifetime_seconds",
}

// ownPhrases are names that take more than one word, with what this server says.
var ownPhrases = map[string]string{
	"a structured call, with binary and args": "run_program",
	"a structured call":                       "run_program",
	"a shell call":                            "run_command",
	"a code call":                             "run_code",
	"unit Bytes":                              "unit bytes",
	"unit Lines":                              "unit lines",
	"use List":                                "use list_files",
	"use Glob":                                "use list_files with pattern",
	"use Grep":                                "use search_files",
	"use Read":                                "use read_file",
	"use Write":                               "use write_file",
	"use Edit":                                "use edit_file",
	"the binary is empty":                     "program is empty",
	"set code.networkAccess of the call":      "set network",
	"the call's network.hosts":                "network_hosts",
	"leave hosts out":                         "leave network_hosts out",
	"List or Glob":                            "list_files",
	"what Read returns":                       "what read_file returns",
	"which Read shows":                        "which read_file shows",
	"Stat shows its mode":                     "ls -ld shows its mode",
	"A structured call's binary":              "Program",
	"; binary is one program":                 "; program is one program",
	"leave out ifSHA256 to replace it, or give the checksum": "leave out create_only to replace it, or give if_sha256 instead, the checksum",
}

// phrases matches one of them, of two the longer, as whole words.
var phrases = func() *regexp.Regexp {
	all := slices.SortedFunc(maps.Keys(ownPhrases), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for i, phrase := range all {
		all[i] = regexp.QuoteMeta(phrase) + `\b`
		if !strings.HasPrefix(phrase, ";") {
			all[i] = `\b` + all[i]
		}
	}
	return regexp.MustCompile(strings.Join(all, "|"))
}()

func ownPhrase(phrase string) string { return ownPhrases[phrase] }

var (
	quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	// word matches a name, perhaps with an index and a field of that element, and the brackets and marks around it.
	word = regexp.MustCompile(`^([(\[]?)((?:[A-Za-z0-9]+\.)*[A-Za-z0-9]+)(\[\d+\])?(?:\.([A-Za-z0-9]+))?([,;:.)\]]*)$`)
	// foreign ends where what somebody else wrote begins: who made a rule, who decides about calls, another admission plugin, or CEL.
	foreign = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']*)' with binding '[^']*' denied request: ` +
		`|(?:denies the call|denied the call|denied the request|could not be evaluated|does not compile): `)
	// moreOfStream is the line in which the operator says how to read the rest of a stream.
	moreOfStream = regexp.MustCompile(`(More of (?:stdout|stderr) \(\d+ bytes in all\)): kubectl toolcall logs (\S+) [^\n]*--stream (stdout|stderr), [^\n]*`)
)

// OwnWords calls tools and arguments in a message of the operator as this server does. What is quoted stays: it is the caller's own. So does
// what others wrote, which ends a message. What begins with an upper-case letter still does, unless it begins with an argument.
func OwnWords(message string) string {
	initial, size := utf8.DecodeRuneInString(message)
	if !unicode.IsUpper(initial) {
		return renamedOutsideQuotes(message)
	}
	small := string(unicode.ToLower(initial)) + message[size:]
	own := renamedOutsideQuotes(small)
	first, _, _ := strings.Cut(small, " ")
	if ownFirst, _, _ := strings.Cut(own, " "); renamedWord(first) != first || strings.ContainsAny(ownFirst, "_[") {
		return own
	}
	initial, size = utf8.DecodeRuneInString(own)
	return string(unicode.ToUpper(initial)) + own[size:]
}

func renamedOutsideQuotes(message string) string {
	var b strings.Builder
	at := 0
	for _, quote := range append(quotation.FindAllStringIndex(message, -1), []int{len(message), len(message)}) {
		outside := message[at:quote[0]]
		if end := endOfOwn(outside); end < len(outside) {
			return b.String() + renamed(outside[:end]) + message[at+end:]
		}
		own := renamed(outside)
		if rest, isBinary := strings.CutSuffix(own, "binary "); isBinary {
			own = rest + "program "
		}
		b.WriteString(own + message[quote[0]:quote[1]])
		at = quote[1]
	}
	return b.String()
}

// endOfOwn is where the operator's own words in a text end.
func endOfOwn(text string) int {
	at := foreign.FindStringSubmatchIndex(text)
	if at == nil || at[2] >= 0 && strings.HasPrefix(text[at[2]:at[3]], "toolcall-") {
		return len(text)
	}
	return at[1]
}

// renamed replaces names in a text without quotations.
func renamed(text string) string {
	words := strings.Split(phrases.ReplaceAllStringFunc(text, ownPhrase), " ")
	for i, one := range words {
		words[i] = renamedWord(one)
	}
	return strings.Join(words, " ")
}

func renamedWord(one string) string {
	m := word.FindStringSubmatch(one)
	if m == nil {
		return one
	}
	end := m[3]
	if m[4] != "" {
		end += "." + ownName(m[4])
	}
	return m[1] + ownName(m[2]) + end + m[5]
}

// ownName is what this server calls a field, whose path may begin with "spec." and "file.".
func ownName(path string) string {
	for _, asked := range []string{path, strings.TrimPrefix(path, "spec."), strings.TrimPrefix(strings.TrimPrefix(path, "spec."), "file.")} {
		if name, known := ownNames[asked]; known {
			return name
		}
	}
	return path
}

// ownEnd replaces what the operator says behind the output of a command: how to read the rest, and how to reach a host.
func ownEnd(output string, hasDeniedHosts bool) string {
	output = moreOfStream.ReplaceAllString(output, "$1: read_output with call $2 and stream $3")
	if at := strings.LastIndex(output, "the call's network.hosts"); hasDeniedHosts && at >= 0 {
		output = output[:at] + phrases.ReplaceAllStringFunc(output[at:], ownPhrase)
	}
	return output
}
