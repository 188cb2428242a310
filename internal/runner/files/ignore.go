package files

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"

	"toolcall.dev/operator/internal/glob"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// Bounds of the .gitignore files that a walk respects at the same time: as a pattern, text takes a hundred times its size. What
// is beyond isn't respected.
const (
	maxIgnoreBytes    = 256 << 10
	maxIgnorePatterns = 2000
)

const ignoreName = ".gitignore"

// ignored are the patterns of the .gitignore files of the directories that a walk is in, the outermost first. As in git, the last one that
// matches decides.
type ignored struct {
	c *call
	// denied is that of the walk.
	denied   func(relative string) bool
	patterns []ignorePattern
	// bytes is how much was read for them.
	bytes int64
}

// ignorePattern is one line.
type ignorePattern struct {
	// below is the directory that its file is in, and above the way from there to the directory of the walk: one of them is empty.
	below, above     string
	negated, onlyDir bool
	// name matches the last name, if the pattern is one without a wildcard; otherwise expr matches the path.
	name string
	expr *regexp.Regexp
}

// respectGitIgnore has a walk leave out what .gitignore files name, if the request wants that. Those above the walk count up to
// the top of the repository.
func (w *walker) respectGitIgnore(p *place) {
	if !w.c.req.RespectGitIgnore {
		return
	}
	w.ignored = &ignored{c: w.c, denied: w.denied}
	for dir, above := p.path, ""; dir != "/" && !w.c.isRepository(dir); {
		above = path.Base(dir) + "/" + above
		dir = path.Dir(dir)
		parent, err := w.c.resolve(dir, how{follow: true})
		if err != nil {
			break
		}
		if !w.c.rules.isDenied(path.Join(dir, ignoreName)) {
			w.ignored.patterns = slices.Insert(w.ignored.patterns, 0, w.ignored.read(parent.fd, above, "")...)
		}
		parent.close()
	}
}

// isRepository says that a directory is the top of a repository.
func (c *call) isRepository(dir string) bool {
	p, err := c.resolve(path.Join(dir, ".git"), how{})
	if err != nil {
		return false
	}
	p.close()
	return true
}

// enter respects the file of a directory until what it returns is called.
func (i *ignored) enter(dir *directory, prefix string) (leave func()) {
	if i == nil {
		return func() {}
	}
	before := *i
	if i.denied == nil || !i.denied(prefix+ignoreName) {
		i.patterns = append(i.patterns, i.read(dir.fd, "", prefix)...)
	}
	return func() { *i = before }
}

// has says that an entry is left out.
func (i *ignored) has(relative string, isDir bool) bool {
	if i == nil {
		return false
	}
	for n := len(i.patterns) - 1; n >= 0; n-- {
		if p := &i.patterns[n]; p.isMatch(relative, isDir) {
			return !p.negated
		}
	}
	return false
}

func (p *ignorePattern) isMatch(relative string, isDir bool) bool {
	switch {
	case p.onlyDir && !isDir:
		return false
	case p.name != "":
		return p.name == path.Base(relative)
	}
	return p.expr.MatchString(p.above + strings.TrimPrefix(relative, p.below))
}

// read reads the patterns of a directory; none if it has no file of them that can be read.
func (i *ignored) read(dir int, above, below string) (patterns []ignorePattern) {
	fd, st, err := openRegular(dir, ignoreName, ignoreName, new(sys.Devices))
	if err != nil {
		return nil
	}
	defer sys.Close(fd)
	size := min(st.Size, maxIgnoreBytes-i.bytes)
	text, err := sys.ReadSpan(i.c.ctx, fd, sys.Span{End: size})
	if err != nil {
		return nil
	}
	i.bytes += size
	if size < st.Size { // a part of a pattern may match more than the whole
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte(byteOrderMark))) {
		if len(i.patterns)+len(patterns) == maxIgnorePatterns || i.c.ctx.Err() != nil {
			break
		}
		if p := parseIgnore(string(line)); p != nil {
			p.above, p.below = above, below
			patterns = append(patterns, *p)
		}
	}
	return patterns
}

// parseIgnore reads a line; nil for one without a pattern, or with one that can't match.
func parseIgnore(line string) *ignorePattern {
	// The names of macOS end with a carriage return of their own: Icon is another file.
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if line == "" || line[0] == '#' {
		return nil
	}
	p := &ignorePattern{}
	line, p.negated = strings.CutPrefix(line, "!")
	line, p.onlyDir = strings.CutSuffix(line, "/")
	rest, isAnchored := strings.CutPrefix(line, "/")
	if rest == "" {
		return nil
	}
	if isAnchored = isAnchored || strings.Contains(rest, "/"); !isAnchored && glob.IsPlain(rest) {
		p.name = rest
		return p
	}
	// In git, braces stand for themselves, and "/**" at the end matches what is in a directory only.
	rest = strings.NewReplacer("{", `\{`, "}", `\}`).Replace(rest)
	if inside, ok := strings.CutSuffix(rest, "/**"); ok {
		rest = inside + "/**/*"
	}
	if !isAnchored {
		rest = "**/" + rest
	}
	expr, err := glob.Expression(rest)
	if err != nil {
		return nil
	}
	if p.expr, err = regexp.Compile("(?s)^(?:" + expr + ")$"); err != nil {
		return nil
	}
	return p
}
