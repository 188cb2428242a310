package files

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

// results writes one JSON object a line, up to the limit of the request and the bound of the output.
type results struct {
	buffer       *bufio.Writer
	limit, count int
	// room is what the output still takes.
	room  int64
	rules *compiledRules
}

func (c *call) newResults() *results {
	return &results{buffer: bufio.NewWriterSize(c.stdout, 16<<10), limit: maxResults(c.req), room: c.rules.MaxOutputBytes, rules: c.rules}
}

// add writes a result. It returns errEnough instead of the first result that is too many.
func (r *results) add(v any) error {
	if r.count == r.limit {
		return errEnough
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	w := window{rules: r.rules, around: line.Bytes()}
	if r.rules.Hidden != nil {
		w.hidden = r.rules.Hidden(w.around)
	}
	text, names := w.show(0, line.Len())
	if int64(len(text)) > r.room {
		return errEnough
	}
	r.rules.count(names)
	r.room -= int64(len(text))
	r.count++
	_, err := r.buffer.Write(text)
	return err
}

// finish completes the results that ended with err.
func (r *results) finish(p *place, err error) (Result, error) {
	result := Result{Path: p.path, Matches: r.count, Truncated: errors.Is(err, errEnough)}
	if err != nil && !result.Truncated {
		return result, err
	}
	return result, r.buffer.Flush()
}

func (c *call) list() (Result, error) {
	p, err := c.resolve(c.req.Path, how{follow: true})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	w, out := c.underRules(p), c.newResults()
	w.respectGitIgnore(p)
	descend := func(string, int) bool { return c.req.Recursive }
	err = w.walk(p, descend, func(relative string, dir *directory, e dirent) error {
		entry, err := describe(dir, relative, e.name)
		if err != nil {
			w.skipped.Unreadable++
			return nil
		}
		return out.add(entry)
	})
	return w.finish(p, out, err)
}

// describe returns the entry of a name in an open directory.
func describe(dir *directory, relative, name string) (Entry, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Entry{}, err
	}
	entry := newEntry(relative, &st)
	if entry.Type == TypeLink {
		// It may be something else by now: then it has no target.
		if target, err := sys.ReadLink(dir.fd, name); err == nil {
			entry.Target, entry.TargetBase64 = exact(target)
		}
	}
	return entry, nil
}

func (c *call) stat() (Result, error) {
	p, err := c.resolve(c.req.Path, how{})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	entry := newEntry(p.path, &p.st)
	if entry.Type == TypeLink {
		target, err := sys.ReadLink(p.fd, "")
		if err != nil {
			return Result{}, sys.FileError("read the symbolic link", p.path, err)
		}
		entry.Target, entry.TargetBase64 = exact(target)
	}
	sum, err := c.sumOfEntry(p, &entry)
	if err != nil {
		return Result{}, err
	}
	out := c.newResults()
	result, err := out.finish(p, out.add(entry))
	result.Bytes, result.SHA256 = entry.Size, sum
	return result, err
}

// sumOfEntry returns the checksum of a file that may be compared, so that a file too large for one Read can be replaced on
// condition; empty for what can't be read, or isn't shown whole.
func (c *call) sumOfEntry(p *place, entry *Entry) (string, error) {
	if entry.Type != TypeFile || entry.Size > c.rules.MaxReadBytes {
		return "", nil
	}
	sum := c.rules.newSum()
	if err := c.copyFile(sum, p); err != nil {
		return "", c.ctx.Err()
	}
	return sum.hex(), nil
}

func (c *call) glob() (Result, error) {
	// A pattern in the home directory says itself where to look.
	dir, prefix := c.req.Path, ""
	pattern, isHome := strings.CutPrefix(c.req.Pattern, "~/")
	if isHome {
		dir, prefix = "~", "~/"
	}
	glob, err := patterns.CompileGlob(pattern, false)
	if err != nil {
		return Result{}, err
	}
	p, err := c.resolve(dir, how{follow: true})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	w, out := c.underRules(p), c.newResults()
	w.hidden = isLeftOut
	w.respectGitIgnore(p)
	err = w.walk(p, glob.MayMatchBelow, func(relative string, _ *directory, e dirent) error {
		if !glob.IsMatch(relative) {
			return nil
		}
		found := Found{Type: kinds[e.kind]}
		found.Path, found.PathBase64 = exact(prefix + relative)
		return out.add(found)
	})
	result, err := w.finish(p, out, err)
	if err == nil && result.Matches == 0 {
		result.Note = c.noteBrackets(p, pattern)
	}
	return result, err
}

// noteBrackets says of a glob that matches nothing how to write it, if there is a name that has its brackets.
func (c *call) noteBrackets(p *place, pattern string) string {
	quoted := strings.NewReplacer("[", `\[`, "]", `\]`).Replace(pattern)
	if quoted == pattern || strings.Contains(pattern, `\`) {
		return ""
	}
	glob, err := patterns.CompileGlob(quoted, c.req.Operation == spec.OperationGrep)
	if err != nil {
		return ""
	}
	there := ""
	w := c.underRules(p)
	w.hidden = isLeftOut
	_ = w.walk(p, glob.MayMatchBelow, func(relative string, _ *directory, _ dirent) error {
		if !glob.IsMatch(relative) {
			return nil
		}
		there = relative
		return errEnough
	})
	if there == "" {
		return ""
	}
	return fmt.Sprintf("There is %s: in a glob, brackets name one character of several; write %s for the brackets themselves.", sys.Quote(there), quoted)
}

// isLeftOut says of an entry that Glob and Grep leave it out.
func isLeftOut(e dirent) bool {
	return e.name == ".git" || e.kind == unix.DT_REG && isTemporary(e.name)
}
