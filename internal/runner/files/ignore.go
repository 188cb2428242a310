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

// ignored are the .gitignore files of the directories that a walk is in, the outermost first. As in git, the last pattern that
// matches decides.
type ignored struct {
	c *call
	// denied is that of the walk.
	denied func(relative string) bool
	files  []ignoreFile
}

// ignoreFile are the patterns of one file.
type ignoreFile struct {
	// below is the directory that the file is in, and above the way from there to the directory of the walk: one of them is empty.
	below, above string
	patterns     []ignorePattern
	size         int64
}

// ignorePattern is one line.
type ignorePattern struct {
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
			w.ignored.files = slices.Insert(w.ignored.files, 0, w.ignored.read(parent.fd, ignoreFile{above: above}))
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
	before := len(i.files)
	if i.denied == nil || !i.denied(prefix+ignoreName) {
		i.files = append(i.files, i.read(dir.fd, ignoreFile{below: prefix}))
	}
	return func() { i.files = i.files[:before] }
}

// has says that an entry is left out.
func (i *ignored) has(relative string, isDir bool) bool {
	if i == nil {
		return false
	}
	for n := len(i.files) - 1; n >= 0; n-- {
		f := &i.files[n]
		at := f.above + strings.TrimPrefix(relative, f.below)
		for m := len(f.patterns) - 1; m >= 0; m-- {
			if f.patterns[m].isMatch(at, isDir) {
				return !f.patterns[m].negated
			}
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
	return p.expr.MatchString(relative)
}

// read reads the patterns of a directory; none if it has no file of them that can be read.
func (i *ignored) read(dir int, f ignoreFile) ignoreFile {
	fd, err := sys.OpenBeneath(dir, ignoreName, sys.ReadFlags, 0)
	if err != nil {
		return f
	}
	defer sys.Close(fd)
	st, err := sys.Fstat(fd)
	if err != nil || !sys.IsRegular(&st) {
		return f
	}
	bytesLeft, patternsLeft := int64(maxIgnoreBytes), maxIgnorePatterns
	for _, other := range i.files {
		bytesLeft, patternsLeft = bytesLeft-other.size, patternsLeft-len(other.patterns)
	}
	f.size = min(st.Size, bytesLeft)
	text, err := sys.ReadSpan(i.c.ctx, fd, sys.Span{End: f.size})
	if err != nil {
		return f
	}
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte(byteOrderMark))) {
		if len(f.patterns) == patternsLeft || i.c.ctx.Err() != nil {
			break
		}
		if p := parseIgnore(string(line)); p != nil {
			f.patterns = append(f.patterns, *p)
		}
	}
	return f
}

// parseIgnore reads a line; nil for one without a pattern, or with one that can't match.
func parseIgnore(line string) *ignorePattern {
	line = strings.TrimRight(line, "\r\n")
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
