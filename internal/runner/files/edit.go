package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

func (c *call) edit() (Result, error) {
	edits, err := edits(c.req)
	if err != nil {
		return Result{}, err
	}
	want := conditionOf(c.req)
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
	all := r.Edits
	if len(all) == 0 {
		all = []spec.Replacement{{OldString: r.OldString, NewString: r.NewString, ReplaceAll: r.ReplaceAll}}
	}
	for i, e := range all {
		if e.OldString == e.NewString {
			return nil, ofEdit(i, len(all), sys.NewError(reason.InvalidRequest, "The oldString and newString are the same: there is nothing to change."))
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
	if t.isCRLF {
		with = bytes.ReplaceAll(with, []byte("\r\n"), []byte("\n"))
	}
	size := int64(len(content)) + int64(count)*int64(len(with)-len(e.OldString))
	if t.isCRLF {
		size += int64(count) * int64(bytes.Count(with, []byte("\n")))
	}
	if size > c.rules.MaxWriteBytes {
		return nil, 0, sys.NewError(reason.FileTooLarge, "%s would have %d bytes: the policy's files.maxWriteBytes allows %d.",
			sys.Quote(p.path), size, c.rules.MaxWriteBytes)
	}
	t.text = bytes.ReplaceAll(t.text, []byte(e.OldString), with)
	return t.content(), count, nil
}

// byteOrderMark is how some editors begin a file of UTF-8.
const byteOrderMark = "\uFEFF"

// editText is a content as an Edit compares it: without the byte-order mark, and with "\n" for each line end of a file in which all are
// "\r\n", unless the text to replace has these itself.
type editText struct {
	mark, text []byte
	isCRLF     bool
}

func newEditText(content []byte, e *spec.Replacement) *editText {
	t := &editText{text: content}
	if rest, ok := bytes.CutPrefix(content, []byte(byteOrderMark)); ok && !strings.HasPrefix(e.OldString, byteOrderMark) {
		t.mark, t.text = content[:len(byteOrderMark)], rest
	}
	ends := bytes.Count(t.text, []byte("\r\n"))
	t.isCRLF = ends > 0 && ends == bytes.Count(t.text, []byte("\n")) && !strings.Contains(e.OldString, "\r")
	if t.isCRLF {
		t.text = bytes.ReplaceAll(t.text, []byte("\r\n"), []byte("\n"))
	}
	return t
}

// content returns the text as it is in the file.
func (t *editText) content() []byte {
	if t.isCRLF {
		t.text = bytes.ReplaceAll(t.text, []byte("\n"), []byte("\r\n"))
	}
	return slices.Concat(t.mark, t.text)
}

// whyNotFound says why a text may not be in the file, and what to do.
func (t *editText) whyNotFound(old string) string {
	if strings.Contains(old, "\r\n") && !bytes.Contains(t.text, []byte("\r\n")) {
		return `the file's lines end with "\n", not with "\r\n"`
	}
	return "compare it with what Read returns, white space included"
}
