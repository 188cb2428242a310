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

func (c *call) edit() (Result, error) {
	edits, err := edits(c.req)
	if err != nil {
		return Result{}, err
	}
	want, err := conditionOf(c.req)
	if err != nil {
		return Result{}, err
	}
	p, err := c.resolve(c.req.Path, how{follow: true})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
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
	fd, st, err := p.openFile()
	if err != nil {
		return nil, err
	}
	defer sys.Close(fd)
	if limit := min(c.rules.MaxReadBytes, c.rules.MaxWriteBytes); st.Size > limit {
		return nil, sys.NewError(reason.FileTooLarge, "%s has %d bytes: the policy's files.maxReadBytes and files.maxWriteBytes let files up "+
			"to %d be edited.", sys.Quote(p.path), st.Size, limit)
	}
	content, err := sys.ReadSpan(c.ctx, fd, sys.Span{End: st.Size})
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
	t := newEditText(content, e)
	count := bytes.Count(t.text, []byte(e.OldString))
	if count == 0 {
		return nil, 0, sys.NewError(reason.EditNotFound, "The oldString was found 0 times in %s: %s.", sys.Quote(p.path), t.whyNotFound(e.OldString))
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
	if t.ends != nil {
		with = bytes.ReplaceAll(with, []byte("\r\n"), []byte("\n"))
	}
	size := int64(len(content)) + int64(count)*int64(len(with)-len(e.OldString))
	if t.ends != nil {
		size += int64(count) * int64(bytes.Count(with, []byte("\n")))
	}
	if size > c.rules.MaxWriteBytes {
		return nil, 0, sys.NewError(reason.FileTooLarge, "%s would have %d bytes: the policy's files.maxWriteBytes allows %d.",
			sys.Quote(p.path), size, c.rules.MaxWriteBytes)
	}
	t.replace([]byte(e.OldString), with)
	return t.content(), count, nil
}

// byteOrderMark is how some editors begin a file of UTF-8.
const byteOrderMark = "\uFEFF"

// editText is a content as an Edit compares it: without the byte-order mark, and with "\n" for each line end, unless the text to
// replace has them itself.
type editText struct {
	mark, text []byte
	// ends says of each line end whether it is "\r\n" in the file; nil if none is.
	ends []bool
}

func newEditText(content []byte, e *spec.Replacement) *editText {
	t := &editText{text: content}
	if rest, ok := bytes.CutPrefix(content, []byte(byteOrderMark)); ok && !strings.HasPrefix(e.OldString, byteOrderMark) {
		t.mark, t.text = content[:len(byteOrderMark)], rest
	}
	if strings.Contains(e.OldString, "\r") || !bytes.Contains(t.text, []byte("\r\n")) {
		return t
	}
	for line := range bytes.Lines(t.text) {
		if bytes.HasSuffix(line, []byte("\n")) {
			t.ends = append(t.ends, bytes.HasSuffix(line, []byte("\r\n")))
		}
	}
	t.text = bytes.ReplaceAll(t.text, []byte("\r\n"), []byte("\n"))
	return t
}

// replace replaces a text wherever it is. What is put in its place gets the line ends of the text, or the one behind it.
func (t *editText) replace(old, with []byte) {
	if t.ends != nil {
		var ends []bool
		feeds, newFeeds := bytes.Count(old, []byte("\n")), bytes.Count(with, []byte("\n"))
		rest, left := t.text, t.ends
		for at := bytes.Index(rest, old); at >= 0; at = bytes.Index(rest, old) {
			before := bytes.Count(rest[:at], []byte("\n"))
			ends = append(ends, left[:before]...)
			here := t.ends[len(t.ends)-1]
			if left = left[before:]; len(left) > 0 {
				here = left[0]
			}
			ends = append(ends, slices.Repeat([]bool{here}, newFeeds)...)
			rest, left = rest[at+len(old):], left[feeds:]
		}
		t.ends = append(ends, left...)
	}
	t.text = bytes.ReplaceAll(t.text, old, with)
}

// content returns the text as it is in the file.
func (t *editText) content() []byte {
	if t.mark == nil && t.ends == nil {
		return t.text
	}
	out := bytes.NewBuffer(slices.Clone(t.mark))
	rest := t.text
	for _, isCRLF := range t.ends {
		line := rest[:bytes.IndexByte(rest, '\n')]
		rest = rest[len(line)+1:]
		out.Write(line)
		if isCRLF {
			out.WriteByte('\r')
		}
		out.WriteByte('\n')
	}
	out.Write(rest)
	return out.Bytes()
}

// whyNotFound says why a text may not be in the file, and what to do.
func (t *editText) whyNotFound(old string) string {
	if line := t.invalidLine(old); line > 0 {
		return fmt.Sprintf("line %d has bytes that aren't UTF-8, which Read shows as U+FFFD and no text matches; change the line with a "+
			"program such as sed or perl, convert the file with iconv, or write it anew", line)
	}
	if strings.Contains(old, "\r\n") && !bytes.Contains(t.text, []byte("\r\n")) {
		return `the file's lines end with "\n", not with "\r\n"`
	}
	return "compare it with what Read returns, white space included"
}

// maxInvalidLines and maxOldLines bound how many lines are compared to find the one that was meant.
const maxInvalidLines, maxOldLines = 10_000, 20

// invalidLine returns the number of a line that isn't UTF-8 and would match if it were; 0 if there is none.
func (t *editText) invalidLine(old string) int64 {
	var wanted [][]byte
	for line := range strings.Lines(old) {
		line = strings.TrimRight(line, "\r\n")
		if folded := foldNonASCII([]byte(line)); len(wanted) < maxOldLines && bytes.IndexByte(folded, nonASCII) >= 0 {
			wanted = append(wanted, folded)
		}
	}
	number, invalid := int64(0), 0
	for line := range bytes.Lines(t.text) {
		number++
		if len(wanted) == 0 || invalid == maxInvalidLines {
			break
		}
		if utf8.Valid(line) {
			continue
		}
		invalid++
		folded := foldNonASCII(line)
		if slices.ContainsFunc(wanted, func(w []byte) bool { return bytes.Contains(folded, w) }) {
			return number
		}
	}
	return 0
}

// nonASCII stands for characters that aren't ASCII, and bytes that aren't UTF-8.
const nonASCII = 0xFF

// foldNonASCII replaces what isn't ASCII: whoever has seen a line as text has another character there, or guesses it.
func foldNonASCII(line []byte) []byte {
	folded := make([]byte, 0, len(line))
	for _, c := range line {
		if c < utf8.RuneSelf {
			folded = append(folded, c)
		} else if len(folded) == 0 || folded[len(folded)-1] != nonASCII {
			folded = append(folded, nonASCII)
		}
	}
	return folded
}
