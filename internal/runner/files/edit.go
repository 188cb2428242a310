package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

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
	if err := p.needReplaceable(want); err != nil {
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
	return Result{Path: p.path, Bytes: int64(len(content)), SHA256: sum.hex(), Replaced: replaced}, nil
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
	t := newEditText(content, e.OldString)
	count := bytes.Count(t.text, []byte(e.OldString))
	if count == 0 {
		return nil, 0, sys.NewError(reason.EditNotFound, "The oldString was found 0 times in %s: %s.", sys.Quote(p.path),
			t.whyNotFound(e.OldString, c.rules.Hidden != nil))
	}
	if first := bytes.Index(t.text, []byte(e.OldString)); count == 1 && !e.ReplaceAll && bytes.Contains(t.text[first+1:], []byte(e.OldString)) {
		// Two occurrences can overlap.
		count = 2
	}
	if count > 1 && !e.ReplaceAll {
		return nil, 0, sys.NewError(reason.EditAmbiguous, "The oldString was found %d times in %s: add lines around it until there is one, or set "+
			"replaceAll.", count, sys.Quote(p.path))
	}
	with := []byte(e.NewString)
	withReturns := with
	if t.returns != nil {
		with = bytes.ReplaceAll(with, []byte("\r\n"), []byte("\n"))
		withReturns = bytes.ReplaceAll(with, []byte("\n"), []byte("\r\n"))
	}
	size := int64(len(content)) + int64(count)*int64(len(withReturns)-len(e.OldString))
	if size > c.rules.MaxWriteBytes {
		return nil, 0, sys.NewError(reason.FileTooLarge, "%s would have %d bytes: the policy's files.maxWriteBytes allows %s.",
			sys.Quote(p.path), size, boundText(c.rules.MaxWriteBytes))
	}
	return t.replace([]byte(e.OldString), with, withReturns), count, nil
}

// byteOrderMark is how some editors begin a file of UTF-8.
const byteOrderMark = "\uFEFF"

// editText is a content as an Edit compares it: without the byte-order mark, and with "\n" for each line end, unless the text to
// replace has them itself.
type editText struct {
	content, text []byte
	// mark is the size of the byte-order mark.
	mark int
	// returns are where the text has the "\n" of a "\r\n"; nil if it has none.
	returns []int
}

func newEditText(content []byte, old string) *editText {
	t := &editText{content: content, text: content}
	if rest, ok := bytes.CutPrefix(content, []byte(byteOrderMark)); ok && !strings.HasPrefix(old, byteOrderMark) {
		t.text, t.mark = rest, len(byteOrderMark)
	}
	if strings.Contains(old, "\r") || !bytes.Contains(t.text, []byte("\r\n")) {
		return t
	}
	text := make([]byte, 0, len(t.text))
	for line := range bytes.Lines(t.text) {
		rest, hasReturn := bytes.CutSuffix(line, []byte("\r\n"))
		if text = append(text, rest...); hasReturn {
			t.returns = append(t.returns, len(text))
			text = append(text, '\n')
		}
	}
	t.text = text
	return t
}

// at is where the content has what the text has at an offset.
func (t *editText) at(offset int) int {
	returns, _ := slices.BinarySearch(t.returns, offset)
	return t.mark + offset + returns
}

// replace returns the content with another text wherever the old one is: the one with "\r\n" where the line ends so in which the old
// one begins.
func (t *editText) replace(old, with, withReturns []byte) (out []byte) {
	copied, lineEnd, hasReturn := 0, -1, false
	for start := 0; ; start += len(old) {
		next := bytes.Index(t.text[start:], old)
		if next < 0 {
			return append(out, t.content[copied:]...)
		}
		if start += next; start > lineEnd && t.returns != nil {
			lineEnd, hasReturn = t.lineEnd(start)
		}
		out = append(out, t.content[copied:t.at(start)]...)
		if hasReturn {
			out = append(out, withReturns...)
		} else {
			out = append(out, with...)
		}
		copied = t.at(start + len(old))
	}
}

// lineEnd is where the line ends that has an offset, and whether with "\r\n". A last line without an end takes after the one before.
func (t *editText) lineEnd(offset int) (end int, hasReturn bool) {
	next := bytes.IndexByte(t.text[offset:], '\n')
	if next < 0 {
		_, hasReturn = slices.BinarySearch(t.returns, bytes.LastIndexByte(t.text, '\n'))
		return len(t.text), hasReturn
	}
	_, hasReturn = slices.BinarySearch(t.returns, offset+next)
	return offset + next, hasReturn
}

// whyNotFound says why a text may not be in the file, and what to do. Read may have put marks in place of what it hides.
func (t *editText) whyNotFound(old string, hides bool) string {
	if head := t.content[:min(len(t.content), headBytes)]; isBinary(head) {
		return "the file " + describeBinary(head, int64(len(t.content)))
	}
	if hides && strings.Contains(old, strings.TrimSuffix(cutMark, "]")) {
		return "a mark such as " + cutMark + " stands for another text in the file: leave it out of oldString, and name the text before or " +
			"behind it"
	}
	if line := t.invalidLine(); line > 0 && strings.ContainsFunc(old, func(c rune) bool { return c >= utf8.RuneSelf }) {
		return fmt.Sprintf("line %d has bytes that aren't UTF-8, which Read shows as U+FFFD and no text matches; change the line with a "+
			"program such as sed or perl, convert the file with iconv, or write it anew", line)
	}
	if strings.Contains(old, "\r\n") && !bytes.Contains(t.text, []byte("\r\n")) {
		return `the file's lines end with "\n", not with "\r\n"`
	}
	return "compare it with what Read returns, white space included"
}

// invalidLine returns the number of the first line that isn't UTF-8; 0 if there is none. Whoever has seen it as text has another character
// there, or guesses it.
func (t *editText) invalidLine() (number int) {
	for line := range bytes.Lines(t.text) {
		if number++; !utf8.Valid(line) {
			return number
		}
	}
	return 0
}
