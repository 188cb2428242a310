package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is a fenced part of a page.
type block struct {
	page, language, text string
	line                 int
	// marker is what the HTML comment right above it says.
	marker string
}

// pages are those of the root and all of docs, by their paths.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range top {
		all = append(all, filepath.Base(path))
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".md") {
			relative, _ := filepath.Rel(root, path)
			all = append(all, filepath.ToSlash(relative))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 8 {
		t.Fatalf("found the pages %q only: the test looks in the wrong place", all)
	}
	return all
}

var (
	fence  = regexp.MustCompile("^(\\s*)(```+|~~~+)\\s*([A-Za-z0-9_-]*)\\s*$")
	remark = regexp.MustCompile(`^\s*<!--\s*(.*?)\s*-->\s*$`)
)

// blocks reads the fenced parts of a page. One that isn't closed is a mistake.
func blocks(page, text string) (found []block, unclosed int) {
	var open *block
	var mark, indent, marker string
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open = &block{page: page, language: strings.ToLower(m[3]), line: i + 1, marker: marker}
			indent, mark = m[1], m[2]
		case open != nil && m != nil && m[3] == "" && strings.HasPrefix(m[2], mark):
			found = append(found, *open)
			open, marker = nil, ""
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case strings.TrimSpace(line) != "":
			marker = ""
			if m := remark.FindStringSubmatch(line); m != nil {
				marker = m[1]
			}
		}
	}
	if open != nil {
		unclosed = open.line
	}
	return found, unclosed
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	text := "a\n```sh\none\n```\n<!-- not run: reason -->\n\n```console\n$ two\n```\n<!-- x -->\ntext\n````yaml\n```\nthree\n````\n  ~~~\n  four\n  ~~~\n```sh\nopen\n"
	got, unclosed := blocks("page", text)
	want := []block{
		{page: "page", language: "sh", text: "one\n", line: 2},
		{page: "page", language: "console", text: "$ two\n", line: 7, marker: "not run: reason"},
		{page: "page", language: "yaml", text: "```\nthree\n", line: 12},
		{page: "page", language: "", text: "four\n", line: 16},
	}
	if !slices.Equal(got, want) || unclosed != 19 {
		t.Errorf("got %+v, unclosed %d", got, unclosed)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*#*$`)
)

// everyPage is what the repository has in Markdown, also beside the chart and the clients.
func everyPage(t *testing.T) []string {
	t.Helper()
	command := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "*.md")
	command.Dir = root
	listed, err := command.Output()
	if err != nil {
		t.Logf("without git, only the root and docs are looked at: %v", err)
		return pages(t)
	}
	all := slices.DeleteFunc(strings.Fields(string(listed)), func(page string) bool {
		_, err := os.Stat(filepath.Join(root, page))
		return os.IsNotExist(err) // It was deleted, and the index doesn't know yet.
	})
	for _, page := range append(pages(t), "charts/toolcall-operator/README.md", "clients/python/README.md") {
		if !slices.Contains(all, page) {
			t.Errorf("git doesn't list %s", page)
		}
	}
	return all
}

// codeSpan is text in a line in which nothing is a link; the name of a link may be code.
var codeSpan = regexp.MustCompile("`[^`\n]*`")

// withoutCode leaves out code that looks like a link.
func withoutCode(text string) string {
	return codeSpan.ReplaceAllStringFunc(text, func(span string) string {
		if strings.Contains(span, "](") {
			return ""
		}
		return span
	})
}

// Every link within the project leads to a file that is there, and to a heading that is in it.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, page := range everyPage(t) {
		text := read(t, page)
		if _, line := blocks(page, text); line != 0 {
			t.Errorf("%s:%d: this block isn't closed", page, line)
		}
		for _, m := range link.FindAllStringSubmatch(withoutCode(prose(page, text)), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			checked++
			checkLink(t, page, m[1])
		}
	}
	if checked < 10 {
		t.Errorf("found %d links only", checked)
	}
}

func checkLink(t *testing.T, page, target string) {
	t.Helper()
	path, anchor, _ := strings.Cut(target, "#")
	file := page
	if path != "" {
		file = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
	}
	checkPlace(t, page, file, anchor)
}

// checkPlace wants a file of the project, and in it the heading that an anchor leads to.
func checkPlace(t *testing.T, from, file, anchor string) {
	t.Helper()
	if matches, _ := filepath.Glob(filepath.Join(root, file)); len(matches) != 1 {
		t.Errorf("%s links to %s, which isn't there", from, file)
		return
	}
	if anchor != "" && !slices.Contains(anchors(prose(file, read(t, file))), anchor) {
		t.Errorf("%s links to %s#%s, but %s has no such heading", from, file, anchor, file)
	}
}

// Messages of programs, comments and runbooks lead to pages and headings that are there, too.
func TestSourcesNamePagesThatAreThere(t *testing.T) {
	t.Parallel()
	command := exec.Command("git", "grep", "-noE", `docs/[a-z/-]+\.md(#[a-z0-9-]+)?|"[a-z/-]+\.md#[a-z0-9-]+"`, "--", ":!*.md")
	command.Dir = root
	found, err := command.Output()
	if err != nil {
		t.Skipf("git doesn't list the sources: %v", err)
	}
	for line := range strings.Lines(string(found)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		page, anchor, _ := strings.Cut(strings.TrimPrefix(strings.Trim(parts[2], `"`), "docs/"), "#")
		checkPlace(t, parts[0]+":"+parts[1], "docs/"+page, anchor)
	}
}

// prose is a page without its fenced blocks and without what stands between backquotes.
func prose(page, text string) string {
	lines := strings.Split(text, "\n")
	found, _ := blocks(page, text)
	for _, b := range found {
		for i := range strings.Count(b.text, "\n") + 1 {
			lines[b.line-1+i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}\p{M}_ -]`)

// anchors are made of the headings as GitHub makes them.
func anchors(text string) []string {
	var all []string
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		if n := seen[anchor]; n > 0 {
			all = append(all, anchor+"-"+string(rune('0'+n)))
		} else {
			all = append(all, anchor)
		}
		seen[anchor]++
	}
	return all
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	got := anchors("# A `code` heading, with: signs!\n## spec.env[].name\n## Twice\n## Twice\n### [A link](x.md)\n")
	want := []string{"a-code-heading-with-signs", "specenvname", "twice", "twice-1", "a-link"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Programs that pages show are those that the tests run, letter by letter.
func TestPagesShowTheFiles(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	for _, page := range pages(t) {
		found, _ := blocks(page, read(t, page))
		for _, b := range found {
			path, ok := strings.CutPrefix(b.marker, "file: ")
			if !ok {
				continue
			}
			shown[path] = true
			if b.text != read(t, path) {
				t.Errorf("%s:%d doesn't show %s as it is: copy it anew", b.page, b.line, path)
			}
		}
	}
	for _, pattern := range []string{"*/*.py", "*/*.ts"} {
		paths, _ := filepath.Glob(filepath.Join(root, "docs/examples", pattern))
		if len(paths) == 0 {
			t.Errorf("no example matches %s", pattern)
		}
		for _, path := range paths {
			relative, _ := filepath.Rel(root, path)
			if !shown[filepath.ToSlash(relative)] {
				t.Errorf("no page shows %s: put it behind <!-- file: %s -->", relative, relative)
			}
		}
	}
}

// The index leads to every page, so that a reader who starts there finds it.
func TestIndexListsEveryPage(t *testing.T) {
	t.Parallel()
	const index = "docs/README.md"
	listed := map[string]bool{index: true}
	for _, m := range link.FindAllStringSubmatch(prose(index, read(t, index)), -1) {
		path, _, _ := strings.Cut(m[1], "#")
		listed[filepath.ToSlash(filepath.Join("docs", path))] = true
	}
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/") && !listed[page] {
			t.Errorf("%s has no link to %s", index, page)
		}
	}
}
