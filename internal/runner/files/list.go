package files

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/glob"
	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

// results puts out one JSON object a line, up to the limit of the request and the bound of the output.
type results struct {
	*call
	matches int
}

// add writes a result. It returns errEnough instead of the first result that is too many.
func (r *results) add(v any) error {
	if r.matches == maxResults(r.req) {
		return errEnough
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	w := window{around: line.Bytes()}
	if r.rules.Hidden != nil {
		w.hidden = r.rules.Hidden(w.around)
	}
	text, names := w.show(0, line.Len())
	if int64(len(r.out)+len(text)) > r.rules.MaxOutputBytes {
		return errEnough
	}
	r.out = append(r.out, text...)
	r.count(names)
	r.matches++
	return nil
}

// finish completes the results that ended with err.
func (r *results) finish(p *place, err error) (Result, error) {
	f := reason.File{Path: p.path, Matches: new(int64(r.matches)), Truncated: errors.Is(err, errEnough)}
	return Result{File: f}, sys.Ignoring(err, errEnough)
}

func (c *call) list(p *place) (Result, error) {
	w, out := c.underRules(p), &results{call: c}
	w.respectGitIgnore(p)
	descend := func(string, int) bool { return c.req.Recursive }
	err := w.walk(p, descend, func(relative string, dir *directory, e dirent) error {
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
	return newEntry(relative, &st, dir.fd, name), nil
}

func (c *call) stat(p *place) (Result, error) {
	entry := newEntry(p.path, &p.st, p.fd, "")
	sum, err := c.sumOfEntry(p, &entry)
	if err != nil {
		return Result{}, err
	}
	out := &results{call: c}
	found, err := out.finish(p, out.add(entry))
	found.Matches, found.Bytes, found.SHA256 = nil, new(entry.Size), sum
	return found, err
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
	w, out := c.searching(p), &results{call: c}
	err = w.walkGlob(p, glob, func(relative string, _ *directory, e dirent) error {
		found := Found{Type: kinds[e.kind]}
		found.Path, found.PathBase64 = exact(prefix + relative)
		return out.add(found)
	})
	result, err := w.finish(p, out, err)
	if err == nil && out.matches == 0 {
		result.Note = cmp.Or(c.noteBrackets(p, pattern), noteLink(c, p, pattern))
	}
	return result, err
}

// noteLink says of a glob that matches nothing that it names a link, if it does: a walk doesn't follow it.
func noteLink(c *call, p *place, pattern string) string {
	at := p.path
	for _, name := range glob.Prefix(pattern) {
		at = path.Join(at, name)
		there, err := c.resolve(at, how{})
		if err != nil {
			return ""
		}
		isLink := typeOf(there.st.Mode) == TypeLink
		there.close()
		if isLink {
			return fmt.Sprintf("%s is a symbolic link, which a glob doesn't follow: name it in path.", sys.Quote(at))
		}
	}
	return ""
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
	_ = c.searching(p).walkGlob(p, glob, func(relative string, _ *directory, _ dirent) error {
		there = relative
		return errEnough
	})
	if there == "" {
		return ""
	}
	return fmt.Sprintf("There is %s: in a glob, brackets name one character of several; write %s for the brackets themselves.", sys.Quote(there), quoted)
}
