package reply

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
)

// An answer has at most so many characters by default. Less than the smallest limit leaves no room for what the server itself says.
const (
	DefaultLimit = 20_000
	MinLimit     = 2_000
)

// noteLength is how many characters are left for the note on where the rest of a file is, growth how much longer that makes the last line.
const (
	noteLength = 300
	growth     = 80
)

// Room is how much output of a tool an answer has room for, in characters.
func Room(limit int) int { return limit - 1_000 }

func length(text string) int { return utf8.RuneCountInString(text) }

// Shorten cuts the middle out of a text that has more than limit characters. where says where the rest is.
func Shorten(text string, limit int, where string) string {
	if len(text) <= limit || length(text) <= limit {
		return text
	}
	runes := []rune(text)
	mark := func(left int) string { return fmt.Sprintf("\n\n[%d characters left out%s]\n\n", left, where) }
	keep := max(limit-length(mark(len(runes))), 0)
	head, tail := keep/3, keep-keep/3
	return string(runes[:head]) + mark(len(runes)-keep) + string(runes[len(runes)-tail:])
}

// fit shortens the output to so many characters, and says how to get the rest.
func (r *Result) fit(room int) {
	if length(r.Output) <= room {
		return
	}
	switch {
	case r.call == nil:
		r.Output = Shorten(r.Output, room, "")
	case r.call.Spec.File == nil:
		r.Truncated = true
		r.Output = Shorten(r.Output, room, fmt.Sprintf("; read_output with call %s has them", r.call.Name))
	case r.call.Spec.File.Operation == v1alpha1.FileRead && r.File != nil && !r.File.Binary:
		r.cutFile(r.call.Spec.File, r.call.Status.Stdout, room-noteLength)
	case r.File != nil:
		r.File.Truncated = true
		r.Output = firstLines(r.Output, room-noteLength) + "\n\nThere are more results than these: narrow the search with path, pattern or max_results."
	}
}

// firstLines returns the whole lines of a text that fit into so many characters, at least a part of the first one.
func firstLines(text string, room int) string {
	runes := []rune(text)
	part := string(runes[:min(room, len(runes))])
	if end := strings.LastIndexByte(part, '\n'); end > 0 {
		return part[:end]
	}
	return part
}

// cutFile shows the beginning of a part of a file, and has the next read go on there.
func (r *Result) cutFile(asked *v1alpha1.FileAction, text string, room int) {
	shown, first, warning := firstLines(text, room), ptr.Deref(asked.Offset, 0), ""
	if strings.HasSuffix(r.Output, result.NotUTF8) {
		warning = "\n\n" + result.NotUTF8
	}
	r.File.NextOffset, r.File.Truncated = nil, true
	inBytes := asked.Unit == v1alpha1.UnitBytes
	next, unit := max(first, 1)+int64(strings.Count(shown, "\n"))+1, ""
	if inBytes {
		next, unit = first+int64(len(shown)), " and unit bytes"
	}
	isWhole := len(shown) < len(text) && text[len(shown)] == '\n'
	switch {
	case !r.isExact(text, inBytes):
		r.Output = shown + "\n\nThere is more: ask for less at a time with limit."
	case !inBytes && !isWhole:
		r.Output = shown + fmt.Sprintf("\n\nThis is a part of line %d, which is longer than an answer: read it with unit bytes.", next-1)
	default:
		r.Output = shown + fmt.Sprintf("\n\nThere is more: read on from offset %d%s.", next, unit)
		r.File.NextOffset = &next
	}
	r.Output += warning
}

// isExact reports whether places in a text are places in its file. They aren't where values are redacted, and for bytes where characters stand
// for bytes that aren't UTF-8.
func (r *Result) isExact(text string, inBytes bool) bool {
	if inBytes {
		return ptr.Deref(r.File.Bytes, int64(len(text))) == int64(len(text))
	}
	ends := int64(strings.Count(text, "\n"))
	lines := ptr.Deref(r.File.Lines, ends)
	return lines == ends || lines == ends+1
}
