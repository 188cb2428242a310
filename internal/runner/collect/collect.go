package collect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files"
	"toolcall.dev/operator/internal/spec"
)

// Request says what to keep.
type Request struct {
	spec.Collect
	// WorkingDir and Home are where globs begin.
	WorkingDir, Home string
	// RunnerPaths are those of the runner's own, of which nothing is kept.
	RunnerPaths []string
	// Shown is what is said of a path, and what the file is kept as.
	Shown func(path string) string
	// Dir is where the file is made that has them; /tmp when empty.
	Dir string
}

// Do keeps what a request names, up to the end of the context. The files are nil when there are none.
func Do(ctx context.Context, r *Request) (*Files, *result.Artifacts) {
	c := &collector{ctx: ctx, Request: r, seen: map[string]bool{}, paths: map[string]bool{}}
	c.report.shown = r.Shown
	c.MaxCount = min(max(c.MaxCount, 0), result.MaxArtifacts)
	c.MaxBytes = min(c.MaxBytes, result.MaxArtifactBytes)
	for _, one := range r.Globs {
		c.glob(one)
	}
	artifacts := &result.Artifacts{Kept: c.kept, Omitted: c.report.omitted, Message: c.report.message()}
	if len(c.kept) > 0 {
		return newFiles(c.file, c.kept), artifacts
	}
	if c.file != nil {
		c.file.Close()
	}
	return nil, artifacts
}

// collector is one Do.
type collector struct {
	ctx context.Context
	*Request
	report report

	// file has the bytes of all that is kept, one after the other; size is how many. It is made for the first one.
	file *os.File
	size int64
	kept result.ArtifactList

	// seen are the files that are kept by a name of their own, without links in it, and paths are the names of all.
	seen, paths map[string]bool
	pathBytes   int
}

// glob keeps what a glob matches.
func (c *collector) glob(pattern string) {
	rules := &files.Rules{FileRules: spec.FileRules{WritePaths: c.WritePaths, DeniedPaths: c.DeniedPaths}, RunnerPaths: c.RunnerPaths}
	matches := 0
	skipped, isCut, err := files.Visit(c.ctx, rules, &spec.File{Path: pattern, WorkingDir: c.WorkingDir, Home: c.Home}, func(f *files.Candidate) error {
		matches++
		return c.visit(f)
	})
	var refused *files.Error
	switch {
	case c.ctx.Err() != nil:
		c.report.isStopped = true
	case errors.As(err, &refused) && refused.Reason == result.FileNotFound, err == nil && matches == 0:
		c.report.note("%q matches no file.", pattern)
	case err != nil:
		c.report.note("%q can't be collected: %s", pattern, err.Error())
	}
	if isCut {
		c.report.note("%q was looked for in a part of the files only, as there are too many: name a directory further down.", pattern)
	}
	if n := skipped.Denied + skipped.Unreadable + skipped.Deep; n > 0 {
		c.report.note("%q was not looked for in %d files and directories that are denied, can't be read or are too deep.", pattern, n)
	}
}

// visit keeps a file, or says why not. It returns an error when nothing more can be kept at all.
func (c *collector) visit(f *files.Candidate) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	path := c.Shown(f.Path)
	switch {
	case c.paths[path] && path == f.Path, !f.IsLink() && c.seen[f.Real]:
		// Another glob matched it too.
		return nil
	case c.paths[path]:
		c.report.omit(path, "whose path is another file's, too, once the values of Secrets in it are redacted", "")
		return nil
	case !f.IsLink() && !f.IsRegular():
		c.report.omit(path, "that aren't regular files", "")
		return nil
	case result.ArtifactPathSize(path) == 0:
		c.report.omit(path, refusal(fmt.Sprintf("whose path isn't UTF-8, or takes more than %d bytes as JSON", result.MaxArtifactPath)), "")
		return nil
	case strings.ContainsFunc(path, isControl):
		c.report.omit(path, "whose path has control characters: rename them", "")
		return nil
	case len(c.kept) >= c.MaxCount || c.pathBytes+result.ArtifactPathSize(path) > result.MaxArtifactPaths:
		c.report.omit(path, refusal(fmt.Sprintf("more than the %d files that are kept, or than %d bytes of paths", c.MaxCount, result.MaxArtifactPaths)), "")
		return nil
	}
	from, err := f.Open()
	if err != nil {
		c.report.omitError(path, err)
		return c.ctx.Err()
	}
	defer from.Close()
	if err := c.keep(path, from); err != nil {
		c.takeBack()
		if c.ctx.Err() == nil {
			c.report.omitError(path, err)
		}
		return c.ctx.Err()
	}
	c.paths[path] = true
	if !f.IsLink() {
		c.seen[f.Real] = true
	}
	c.pathBytes += result.ArtifactPathSize(path)
	return nil
}

// isControl says that a character changes what a terminal or a page shows of a path.
func isControl(c rune) bool {
	return unicode.In(c, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// startBytes is how much of a file its media type is found by.
const startBytes = 512

// keep copies a file behind the others, as far as there is room.
func (c *collector) keep(path string, from *files.Opened) error {
	switch {
	case from.Size > c.MaxBytes:
		return refusal(fmt.Sprintf("larger than %d bytes", c.MaxBytes))
	case from.Size > c.MaxTotalBytes-c.size:
		return refusal(fmt.Sprintf("that don't fit into %d bytes in total", c.MaxTotalBytes))
	}
	if c.file == nil {
		made, err := kept.CreateFile(c.Dir)
		if err != nil {
			return err
		}
		c.file = made
	}
	sum := sha256.New()
	if err := from.Copy(c.ctx, io.MultiWriter(io.NewOffsetWriter(c.file, c.size), sum)); err != nil {
		return err
	}
	start := make([]byte, min(from.Size, startBytes))
	if _, err := c.file.ReadAt(start, c.size); err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	c.kept = append(c.kept, result.Artifact{Path: path, Bytes: from.Size, SHA256: hex.EncodeToString(sum.Sum(nil)), MediaType: mediaType(path, start)})
	c.size += from.Size
	return nil
}

// takeBack gives back the room of a file that wasn't kept.
func (c *collector) takeBack() {
	if c.file != nil {
		_ = c.file.Truncate(c.size)
	}
}
