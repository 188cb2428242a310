// Package bounds cuts what goes into a status to the bounds of the API.
//
// It counts bytes as the API server stores them: JSON, in which a control character, "<", ">" and "&" take six. So what
// it returns fits however it is escaped. It is pure: the same input gives the same output, and what fits is returned as
// it is.
package bounds

import (
	"unicode/utf8"

	"toolcall.dev/operator/api/v1alpha1"
)

// MaxObjectBytes is what a whole ToolCall may take, encoded. etcd takes 1.5 MiB in one request, the object and what is
// around it.
const MaxObjectBytes = 1400 << 10

// ellipsis stands for what was cut.
const ellipsis = "…"

// Text is the start of a text, in whole characters, that takes at most limit bytes of JSON.
func Text(text string, limit int) string {
	kept, room := 0, limit
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if room -= jsonSize(r, size); room < 0 {
			return text[:kept] + ellipsis
		}
		if i += size; room >= len(ellipsis) {
			kept = i
		}
	}
	return text
}

// maxNote bounds an Event's note, in bytes: the API server takes 1024.
const maxNote = 1000

// Note is the start of a text that fits into an Event's note.
func Note(text string) string { return Text(text, maxNote) }

// PathEnd is the end of a path, in whole characters, that takes at most limit bytes of JSON: the end tells more.
func PathEnd(path string, limit int) string {
	kept, room := len(path), limit
	for i := len(path); i > 0; {
		r, size := utf8.DecodeLastRuneInString(path[:i])
		if room -= jsonSize(r, size); room < 0 {
			return ellipsis + path[kept:]
		}
		if i -= size; room >= len(ellipsis) {
			kept = i
		}
	}
	return path
}

// Names are the first names of a list that fit into a status, and how many are left out.
func Names(names []string) (kept []string, omitted int32) {
	n := fitting(len(names), func(i int) string { return names[i] })
	return names[:n], int32(len(names) - n)
}

// Variables are the first variables of a list that fit into a status, and how many are left out.
func Variables(variables []v1alpha1.ResolvedEnvVar) (kept []v1alpha1.ResolvedEnvVar, omitted int32) {
	n := fitting(len(variables), func(i int) string { return variables[i].Name })
	return variables[:n], int32(len(variables) - n)
}

// fitting is how many of the names fit. A list ends with the first that doesn't, so that it has no holes.
func fitting(count int, name func(int) string) int {
	room := v1alpha1.MaxEnvNamesBytes
	for i := range min(count, v1alpha1.MaxEnvNames) {
		size := textSize(name(i))
		if room -= size; room < 0 || size > v1alpha1.MaxEnvNameBytes {
			return i
		}
	}
	return min(count, v1alpha1.MaxEnvNames)
}

// textSize is how many bytes a text takes between the quotes of JSON.
func textSize(text string) int {
	total := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		total += jsonSize(r, size)
		i += size
	}
	return total
}

// jsonSize is how many bytes a character takes in JSON as encoding/json writes it.
func jsonSize(r rune, size int) int {
	switch {
	case r == utf8.RuneError && size <= 1, r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029':
		return len(`\u0000`)
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
		return 2
	case r < ' ':
		return len(`\u0000`)
	default:
		return size
	}
}
