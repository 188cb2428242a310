package files

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

func (c *call) edit(p *place) (Result, error) {
	edits, err := edits(c.req)
	if err != nil {
		return Result{}, err
	}
	want, err := conditionOf(c.req)
	if err != nil {
		return Result{}, err
	}
	if err := cmp.Or(p.needReplaceable(want), p.needWritable()); err != nil {
		return Result{}, err
	}
	content, err := c.readWhole(p)
	if err != nil {
		return Result{}, err
	}
	was := sumOf(content)
	if want.sha256 != "" && want.sha256 != was {
		return Result{}, p.changed(want)
	}
	replaced := 0
	for i := range edits {
		count, err := 0, c.ctx.Err()
		if err == nil {
			content, count, err = c.apply(p, content, &edits[i])
		}
		if err != nil {
			return Result{}, ofEdit(i, len(edits), err)
		}
		replaced += count
	}
	err = c.replace(p, bytes.NewReader(content), p.st.Mode&0o777, condition{sha256: was})
	if err != nil {
		return Result{}, err
	}
	sum := c.rules.newSum()
	_, _ = sum.Write(content)
	f := reason.File{Path: p.path, Bytes: new(int64(len(content))), SHA256: sum.hex(), Replaced: new(int64(replaced))}
	return Result{File: f}, nil
}

// readWhole reads a file that can be edited.
func (c *call) readWhole(p *place) ([]byte, error) {
	fd, err := p.openFile()
	if err != nil {
		return nil, err
	}
	defer sys.Close(fd)
	if limit := min(c.rules.MaxReadBytes, c.rules.MaxWriteBytes); p.st.Size > limit {
		return nil, sys.NewError(reason.FileTooLarge, "%s has %d bytes: the policy's files.maxReadBytes and files.maxWriteBytes let files up "+
			"to %s bytes be edited.", sys.Quote(p.path), p.st.Size, boundText(limit))
	}
	content, err := sys.ReadSpan(c.ctx, fd, sys.Span{End: p.st.Size})
	return content, sys.FileError("read", p.path, err)
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// edits returns the changes of an Edit.
func edits(r *spec.File) ([]spec.Replacement, error) {
	one := spec.Replacement{OldString: r.OldString, NewString: r.NewString, ReplaceAll: r.ReplaceAll}
	all := r.Edits
	switch {
	case len(all) == 0:
		all = []spec.Replacement{one}
	case one != spec.Replacement{}:
		return nil, sys.NewError(reason.InvalidRequest, "There are edits and an oldString, newString or replaceAll beside them: use one form.")
	case len(all) > MaxEdits:
		return nil, sys.NewError(reason.InvalidRequest, "There are %d edits: use at most %d.", len(all), MaxEdits)
	}
	for i, e := range all {
		var err error
		switch {
		case e.OldString == "":
			err = sys.NewError(reason.InvalidRequest, "The oldString is empty: name the text to replace, or use Write for a new file.")
		case e.OldString == e.NewString:
			err = sys.NewError(reason.InvalidRequest, "The oldString and newString are the same: there is nothing to change.")
		}
		if err != nil {
			return nil, ofEdit(i, len(all), err)
		}
	}
	return all, nil
}

// ofEdit says of several edits which one failed.
func ofEdit(i, count int, err error) error {
	if known := (*Error)(nil); errors.As(err, &known) && count > 1 {
		return known.With(fmt.Sprintf("Nothing was changed, because of edits[%d]: %s", i, known.Message))
	}
	return err
}

// apply returns a content after a change, and how often the text was replaced.
func (c *call) apply(p *place, content []byte, e *spec.Replacement) ([]byte, int, error) {
	old, with := inFile(content, e)
	count := bytes.Count(content, old)
	if count == 0 {
		return nil, 0, sys.NewError(reason.EditNotFound, "The oldString was found 0 times in %s: %s.", sys.Quote(p.path),
			whyNotFound(content, e.OldString, c.rules.Hidden != nil))
	}
	if first := bytes.Index(content, old); count == 1 && !e.ReplaceAll && bytes.Contains(content[first+1:], old) {
		// Two occurrences can overlap.
		count = 2
	}
	if count > 1 && !e.ReplaceAll {
		return nil, 0, sys.NewError(reason.EditAmbiguous, "The oldString was found %d times in %s: add lines around it until there is one, or set "+
			"replaceAll.", count, sys.Quote(p.path))
	}
	size := int64(len(content)) + int64(count)*int64(len(with)-len(old))
	if size > c.rules.MaxWriteBytes {
		return nil, 0, sys.NewError(reason.FileTooLarge, "%s would have %d bytes: the policy's files.maxWriteBytes allows %s.",
			sys.Quote(p.path), size, boundText(c.rules.MaxWriteBytes))
	}
	return bytes.ReplaceAll(content, old, with), count, nil
}

var crlf = []byte("\r\n")

// inFile returns the texts of a change as the file has them: with "\r\n" for each line end where all lines of the file end so, unless the
// text to replace has a "\r" itself.
func inFile(content []byte, e *spec.Replacement) (old, with []byte) {
	old, with = []byte(e.OldString), []byte(e.NewString)
	feed := []byte("\n")
	if ends := bytes.Count(content, crlf); ends == 0 || ends != bytes.Count(content, feed) || bytes.Contains(old, []byte("\r")) {
		return old, with
	}
	return bytes.ReplaceAll(old, feed, crlf), bytes.ReplaceAll(bytes.ReplaceAll(with, crlf, feed), feed, crlf)
}

// whyNotFound says why a text may not be in the file, and what to do. Read may have put marks in place of what it hides.
func whyNotFound(content []byte, old string, hides bool) string {
	if len(content) == 0 {
		return "the file is empty; use Write to fill it"
	}
	if head := content[:min(len(content), headBytes)]; isBinary(head) {
		return "the file " + describeBinary(head, int64(len(content)))
	}
	if hides && strings.Contains(old, strings.TrimSuffix(cutMark, "]")) {
		return "a mark such as " + cutMark + " stands for another text in the file: leave it out of oldString, and name the text before or " +
			"behind it"
	}
	if line := invalidLine(content, old); line > 0 {
		return fmt.Sprintf("line %d has bytes that aren't UTF-8, which Read shows as U+FFFD and no text matches; change the line with a "+
			"program such as sed or perl, convert the file with iconv, or write it anew", line)
	}
	if strings.Contains(old, "\r\n") && !bytes.Contains(content, crlf) {
		return `the file's lines end with "\n", not with "\r\n"`
	}
	plain := []byte("\n")
	hasBoth := bytes.Count(content, crlf) != bytes.Count(content, plain)
	if hasBoth && bytes.Contains(bytes.ReplaceAll(content, crlf, plain), bytes.ReplaceAll([]byte(old), crlf, plain)) {
		return `some lines of the file end with "\r\n", and some with "\n": write in oldString what is there, or edit one line at a time`
	}
	if line := blanksLine(content, old); line > 0 {
		return fmt.Sprintf("from line %d on, the file has it with other white space, quotes or dashes: look for tabs, no-break spaces, blanks at "+
			"the end, carriage returns, typographic quotes and dashes, and a last line without a line end, as with cat -A, and write oldString "+
			"as it is there", line)
	}
	if meant := escapes.Replace(old); meant != old && bytes.Contains(content, []byte(meant)) {
		return `oldString has escapes such as \n where the file has the characters themselves: write those`
	}
	if strings.Contains(escapes.Replace(string(content)), old) {
		return `the file has escapes such as \n where oldString has the characters themselves: write oldString as it is there`
	}
	if outlined(old) != old && bytes.Contains(norm.NFC.Bytes(content), norm.NFC.Bytes([]byte(old))) {
		return `the file has it with accents that are encoded otherwise ("e\u0301" and "\u00e9" look alike): write them the other way, or ` +
			"leave the letters with accents out of oldString"
	}
	return "compare it with what Read returns, white space included"
}

// escapes are undone once too often, or once too rarely, by who sends a text.
var escapes = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`)

// typed has the characters that people type in place of typographic ones.
var typed = strings.NewReplacer(
	"\u2018", "'", "\u2019", "'", "\u201c", `"`, "\u201d", `"`, "\u2010", "-", "\u2011", "-", "\u2013", "-", "\u2014", "-",
)

// blanksLine returns the number of the line in which a text begins that differs from another in white space, quotes and dashes only, line
// ends aside; 0 if there is none.
func blanksLine(content []byte, old string) int {
	seen := withoutBlanks([]byte(typed.Replace(old)))
	if len(bytes.TrimSpace(seen)) == 0 {
		return 0
	}
	// A line end at either end of the text may be one that the file doesn't have.
	before, _, found := bytes.Cut(slices.Concat([]byte("\n"), withoutBlanks([]byte(typed.Replace(string(content)))), []byte("\n")), seen)
	if !found {
		return 0
	}
	return max(bytes.Count(before, []byte("\n")), 1)
}

// withoutBlanks has one space for each run of white space in a line, and none at the line's ends.
func withoutBlanks(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for line := range bytes.Lines(text) {
		between := ""
		for word := range bytes.FieldsSeq(line) {
			out = append(append(out, between...), word...)
			between = " "
		}
		if bytes.HasSuffix(line, []byte("\n")) {
			out = append(out, '\n')
		}
	}
	return out
}

// invalidLine returns the number of a line that isn't UTF-8 and looks like a line of a text, but for characters that aren't ASCII; 0 if
// there is none. Whoever has seen the line as text has another character there, or guesses it.
func invalidLine(content []byte, old string) int {
	lines, number := strings.Split(old, "\n"), 0
	// The first and the last line of the text can be parts of lines.
	var parts []string
	whole := map[string]bool{}
	for i, line := range lines {
		seen := strings.TrimSuffix(outlined(line), "\r")
		switch {
		case !strings.Contains(seen, otherMark), strings.TrimSpace(seen) == otherMark && !strings.Contains(line, otherMark):
			// It is ASCII, or has none that a line could be told by.
		case i == 0, i == len(lines)-1:
			parts = append(parts, seen)
		default:
			whole[seen] = true
		}
	}
	for line := range bytes.Lines(content) {
		if number++; utf8.Valid(line) {
			continue
		}
		seen := strings.TrimRight(outlined(string(line)), "\r\n")
		if whole[seen] || slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(seen, part) }) {
			return number
		}
	}
	return 0
}

const otherMark = "\uFFFD"

// outlined has a mark for each run of characters that aren't ASCII.
func outlined(text string) string {
	inRun := false
	return strings.Map(func(c rune) rune {
		wasInRun := inRun
		switch inRun = c >= utf8.RuneSelf; {
		case inRun && wasInRun:
			return -1
		case inRun:
			return utf8.RuneError
		}
		return c
	}, text)
}
