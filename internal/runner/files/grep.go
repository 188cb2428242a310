package files

import (
	"cmp"
	"context"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/runner/files/sys"
)

func (c *call) grep(p *place) (Result, error) {
	wanted, err := patterns.Compile(c.req.Pattern, c.req.Literal)
	var glob *patterns.Glob
	if err == nil && c.req.Glob != "" {
		glob, err = patterns.CompileGlob(c.req.Glob, true)
	}
	if err != nil {
		return Result{}, err
	}
	if c.req.ContextLines < 0 || c.req.ContextLines > MaxContextLines {
		return Result{}, sys.NewError(reason.InvalidRequest, "The contextLines is %d: it is from 0 to %d.", c.req.ContextLines, MaxContextLines)
	}
	var result Result
	if sys.IsDir(&p.st) {
		result, err = c.grepTree(p, wanted, glob)
	} else {
		result, err = c.grepFile(p, wanted)
	}
	if err == nil && *result.Matches == 0 && result.Note == "" && !c.req.Literal && strings.Contains(strings.ReplaceAll(c.req.Pattern, `\\`, ""), `\|`) {
		result.Note = `In the pattern, \| is the character |: write a|b for alternatives.`
	}
	return result, err
}

// grepFile searches one file.
func (c *call) grepFile(p *place, wanted *patterns.Pattern) (Result, error) {
	fd, err := p.openFile()
	if err != nil {
		return Result{}, err
	}
	defer sys.Close(fd)
	found, err := c.newSearcher(wanted).file(fd, p.name, p.st.Size)
	if err != nil {
		return Result{}, sys.FileError("read", p.path, err)
	}
	out := &results{call: c}
	result, err := out.finish(p, out.addHits(found.found))
	result.Skipped = found.skipped
	return result, err
}

func (r *results) addHits(found []hit) error {
	for i := range found {
		if err := r.add(&found[i].Match); err != nil {
			return err
		}
		r.count(found[i].hidden)
	}
	return nil
}

func grepWorkers() int { return min(runtime.GOMAXPROCS(0), 8) }

// MaxThreads is how many threads one Do has waiting for the kernel at most: those of a Grep's searchers, its walk, and its
// caller's.
func MaxThreads() int { return grepWorkers() + 2 }

// grepTree searches a tree: one goroutine walks, others search a file each, and the caller's writes what they found in the order of the
// walk. How many files are searched ahead is bounded.
func (c *call) grepTree(p *place, wanted *patterns.Pattern, glob *patterns.Glob) (Result, error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	c.ctx = ctx
	idle := make(chan *searcher, grepWorkers())
	for range cap(idle) {
		idle <- c.newSearcher(wanted)
	}
	w, files, links := c.searching(p), 0, 0
	queue, walked := make(chan chan hits, 4*cap(idle)), make(chan error, 1)
	go func() {
		walked <- w.walkGlob(p, glob, func(relative string, dir *directory, e dirent) error {
			if e.kind == unix.DT_LNK {
				links++
			}
			if e.kind != unix.DT_REG {
				return nil
			}
			files++
			found := make(chan hits, 1)
			select {
			case queue <- found:
			case <-ctx.Done():
				return ctx.Err()
			}
			s := <-idle
			dir.retain()
			go func() {
				h := s.name(dir, e.name, relative)
				dir.release()
				idle <- s
				found <- h
			}()
			return nil
		})
		close(queue)
	}()
	out := &results{call: c}
	var skipped Skipped
	var err error
	for found := range queue {
		h := <-found
		if err != nil {
			continue
		}
		addSkipped(&skipped, h.skipped)
		if err = out.addHits(h.found); err != nil {
			cancel()
		}
	}
	// The searches that were cut short found less.
	err = cmp.Or(err, <-walked, ctx.Err())
	addSkipped(&w.skipped, skipped)
	result, err := w.finish(p, out, err)
	if err == nil && files == 0 && glob != nil {
		result.Note = cmp.Or(c.noteBrackets(p, c.req.Glob), noteLink(c, p, c.req.Glob))
		if isWhole := !w.truncated && w.skipped == (Skipped{}) && !c.req.RespectGitIgnore; result.Note == "" && isWhole && links == 0 {
			result.Note = "No file was searched, because the glob matches none: without a slash it is compared with names, and otherwise with " +
				"paths below path; {a,b} names alternatives."
		}
	}
	return result, err
}

func addSkipped(to *Skipped, more Skipped) {
	to.Binary += more.Binary
	to.Denied += more.Denied
	to.Unreadable += more.Unreadable
	to.LongLines += more.LongLines
}

// name searches a file by its name in an open directory.
func (s *searcher) name(dir *directory, name, relative string) hits {
	fd, st, err := openRegular(dir.fd, name, relative, &s.devices)
	switch {
	case reasonIs(err, reason.PathNotAllowed):
		return hits{skipped: Skipped{Denied: 1}}
	case err != nil:
		return hits{skipped: Skipped{Unreadable: 1}}
	}
	defer sys.Close(fd)
	h, err := s.file(fd, relative, st.Size)
	if err != nil {
		return hits{skipped: Skipped{Unreadable: 1}}
	}
	return h
}
