package files

import (
	"context"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// taskFiles is how many files of a directory a worker takes at once.
const taskFiles = 32

// grepTask are files of one directory to search.
type grepTask struct {
	dir    *directory
	prefix string
	names  []string
	// done gets the lines found, once.
	done chan hits
}

func (c *call) grep() (Result, error) {
	wanted, err := patterns.Compile(c.req.Pattern, c.req.Literal)
	if err != nil {
		return Result{}, err
	}
	var glob *patterns.Glob
	if c.req.Glob != "" {
		if glob, err = patterns.CompileGlob(c.req.Glob, true); err != nil {
			return Result{}, err
		}
	}
	if c.req.ContextLines < 0 || c.req.ContextLines > MaxContextLines {
		return Result{}, sys.NewError(reason.InvalidRequest, "The contextLines is %d: it is from 0 to %d.", c.req.ContextLines, MaxContextLines)
	}
	p, err := c.resolve(c.req.Path, how{follow: true})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	if !sys.IsDir(&p.st) {
		return c.grepFile(p, wanted)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	within := *c
	within.ctx = ctx
	g := &grepping{w: within.underRules(p), pattern: wanted, glob: glob}
	g.w.hidden = isLeftOut
	g.w.respectGitIgnore(p)
	result, err := g.run(p, c.newResults(), cancel)
	if err == nil && glob != nil && g.files == 0 {
		result.Note = c.noteBrackets(p, c.req.Glob)
	}
	return result, err
}

// grepFile searches one file.
func (c *call) grepFile(p *place, wanted *patterns.Pattern) (Result, error) {
	fd, st, err := p.openFile()
	if err != nil {
		return Result{}, err
	}
	defer sys.Close(fd)
	found, err := c.newSearcher(wanted).file(fd, p.name, st.Size)
	if err != nil {
		return Result{}, sys.FileError("read", p.path, err)
	}
	out := c.newResults()
	result, err := out.finish(p, out.addHits(found.found))
	result.Skipped = found.skipped
	return result, err
}

func (r *results) addHits(found []hit) error {
	for i := range found {
		if err := r.add(found[i].match()); err != nil {
			return err
		}
		r.rules.count(found[i].hidden)
	}
	return nil
}

// grepping searches a tree: one goroutine walks, some search, and the caller's writes what they found in the order of the
// walk. What is searched ahead is bounded by the length of the queue.
type grepping struct {
	w       *walker
	pattern *patterns.Pattern
	glob    *patterns.Glob
	// files is how many there are to search.
	files int
	// pending are files of one directory that aren't a task yet.
	pending *grepTask
	// queue has the tasks in order, work has the same for whoever takes one first.
	queue, work chan *grepTask
}

func grepWorkers() int { return min(runtime.GOMAXPROCS(0), 8) }

// MaxThreads is how many threads one Do has waiting for the kernel at most: those of a Grep's workers, its walk, and its
// caller's.
func MaxThreads() int { return grepWorkers() + 2 }

func (g *grepping) run(p *place, out *results, cancel func()) (Result, error) {
	workers := grepWorkers()
	g.queue, g.work = make(chan *grepTask, 2*workers), make(chan *grepTask, 2*workers)
	var running sync.WaitGroup
	for range workers {
		running.Go(g.search)
	}
	var walkErr error
	running.Go(func() {
		walkErr = g.walk(p)
		close(g.work)
		close(g.queue)
	})
	var found Skipped
	var err error
	for task := range g.queue {
		h := <-task.done
		if err != nil {
			continue
		}
		found.add(h.skipped)
		if err = out.addHits(h.found); err != nil {
			cancel()
		}
	}
	running.Wait()
	if err == nil {
		err = walkErr
	}
	if err == nil {
		// The searches that were cut short found less.
		err = g.w.c.ctx.Err()
	}
	g.w.skipped.add(found)
	return g.w.finish(p, out, err)
}

// walk makes tasks of the files of a tree.
func (g *grepping) walk(p *place) error {
	descend := func(relative string, depth int) bool {
		return g.glob == nil || g.glob.MayMatchBelow(relative, depth)
	}
	err := g.w.walk(p, descend, func(relative string, dir *directory, e dirent) error {
		if e.kind != unix.DT_REG || g.glob != nil && !g.glob.IsMatch(relative) {
			return nil
		}
		g.files++
		if t := g.pending; t != nil && (t.dir != dir || len(t.names) == taskFiles) {
			if err := g.send(); err != nil {
				return err
			}
		}
		if g.pending == nil {
			prefix := strings.TrimSuffix(relative, e.name)
			g.pending = &grepTask{dir: dir.retain(), prefix: prefix, done: make(chan hits, 1)}
		}
		g.pending.names = append(g.pending.names, e.name)
		return nil
	})
	if g.pending == nil {
		return err
	}
	if err == nil {
		return g.send()
	}
	g.pending.dir.release()
	return err
}

// send hands over the pending task.
func (g *grepping) send() error {
	t, ctx := g.pending, g.w.c.ctx
	// Only this goroutine sends: where there is room in one channel, there is in the other, which is emptied first.
	select {
	case g.queue <- t:
		g.pending = nil
	case <-ctx.Done():
		return ctx.Err()
	}
	g.work <- t
	return nil
}

// search takes tasks until there are no more.
func (g *grepping) search() {
	s := g.w.c.newSearcher(g.pattern)
	var known sys.Devices
	for t := range g.work {
		var all hits
		for _, name := range t.names {
			if s.bounds.areReached(&all) || g.w.c.ctx.Err() != nil {
				break
			}
			all.add(s.name(t, name, &known))
		}
		t.dir.release()
		t.done <- all
	}
}

// name searches a file of a task by its name.
func (s *searcher) name(t *grepTask, name string, known *sys.Devices) hits {
	fd, err := sys.OpenBeneath(t.dir.fd, name, sys.ReadFlags, 0)
	if err != nil {
		return hits{skipped: Skipped{Unreadable: 1}}
	}
	defer unix.Close(fd)
	st, err := sys.Fstat(fd)
	if err != nil || !sys.IsRegular(&st) {
		return hits{skipped: Skipped{Unreadable: 1}}
	}
	if known.IsKernels(fd, &st) {
		return hits{skipped: Skipped{Denied: 1}}
	}
	h, err := s.file(fd, t.prefix+name, st.Size)
	if err != nil {
		return hits{skipped: Skipped{Unreadable: 1}}
	}
	return h
}
