package files

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/spec"
)

// raceRounds is how many operations of each kind run against the attackers.
func raceRounds() int {
	if testing.Short() {
		return 60
	}
	return 300
}

// attack runs attackers until the test is over. Each exchanges two names of a directory that it holds open, again and again.
func (w *world) attack(pairs [][2]string) (swaps *atomic.Int64, stop func()) {
	w.t.Helper()
	swaps = &atomic.Int64{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	// Once the first attacker runs, the directories of the others can't be found any more.
	var dirs []int
	for _, pair := range pairs {
		dir, err := unix.Open(filepath.Dir(pair[0]), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	for i, pair := range pairs {
		dir := dirs[i]
		all.Go(func() {
			defer unix.Close(dir)
			for ctx.Err() == nil {
				err := unix.Renameat2(dir, filepath.Base(pair[0]), dir, filepath.Base(pair[1]), unix.RENAME_EXCHANGE)
				if err == nil {
					swaps.Add(1)
				}
			}
		})
	}
	return swaps, func() { cancel(); all.Wait() }
}

// TestRaces has attackers exchange directories and files with links that lead out, while every operation works on them.
// None reads or changes what is outside.
func TestRaces(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a/b/c/canary", "a/b/f", "a/f", "f"} {
		w.file(name, "inside\n")
	}
	// Links are beside what they replace, at each depth, absolute and relative, to a directory and to the file itself.
	w.link(w.outside, "a/b/c-out")
	w.link("../../outside", "a/b-out")
	w.link(w.outside, "a-out")
	w.link(w.outside+"/canary", "a/b/c/canary-out")
	w.link(w.outside+"/canary", "f-out")
	w.link("/proc/self/cwd", "magic")
	w.file("g", "inside\n")
	pair := func(a, b string) [2]string { return [2]string{w.root + "/" + a, b} }
	swaps, stop := w.attack([][2]string{
		pair("a/b/c", "c-out"), pair("a/b", "b-out"), pair("a", "a-out"), pair("a/b/c/canary", "canary-out"), pair("f", "f-out"),
		pair("g", "magic"),
	})
	defer stop()
	requests := []spec.File{
		{Operation: spec.OperationRead, Path: "a/b/c/canary"},
		{Operation: spec.OperationRead, Path: "f"},
		{Operation: spec.OperationRead, Path: "magic/../outside/canary"},
		{Operation: spec.OperationRead, Path: "a/b/../../f"},
		{Operation: spec.OperationGrep, Path: ".", Pattern: "CANARY"},
		{Operation: spec.OperationGrep, Path: "a/b", Pattern: "CANARY", Literal: true},
		{Operation: spec.OperationList, Path: "a/b/c"},
		{Operation: spec.OperationGlob, Path: ".", Pattern: "**/canary"},
		{Operation: spec.OperationStat, Path: "a/b/c/canary"},
		{Operation: spec.OperationWrite, Path: "a/b/c/canary", Content: []byte("inside\n")},
		{Operation: spec.OperationWrite, Path: "a/b/c/new/dir/f", Content: []byte("inside\n")},
		{Operation: spec.OperationWrite, Path: "f", Content: []byte("inside\n")},
		{Operation: spec.OperationEdit, Path: "a/b/c/canary", OldString: "nobody", NewString: "everybody"},
		{Operation: spec.OperationMakeDirectory, Path: "a/b/c/made/dir"},
		{Operation: spec.OperationMove, Path: "a/b/c/canary", Destination: "a/moved", Overwrite: true},
		{Operation: spec.OperationMove, Path: "f", Destination: "a/b/c/canary", Overwrite: true},
		{Operation: spec.OperationDelete, Path: "a/b/c/new", Recursive: true},
		{Operation: spec.OperationDelete, Path: "a/b/c/made", Recursive: true},
		{Operation: spec.OperationDelete, Path: "a/b/c/canary"},
	}
	var succeeded, refused atomic.Int64
	var all sync.WaitGroup
	for _, r := range requests {
		all.Go(func() {
			r.WorkingDir = w.root
			for range raceRounds() {
				out, _, err := Do(t.Context(), &w.rules, &r)
				if bytes.Contains(out, []byte("nobody")) {
					t.Errorf("%s %s escaped: %s", r.Operation, r.Path, out)
					return
				}
				if err == nil {
					succeeded.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	stop()
	w.checkOutside()
	w.checkNothingLeft()
	t.Logf("%d operations succeeded and %d were refused during %d exchanges", succeeded.Load(), refused.Load(), swaps.Load())
	if swaps.Load() == 0 || succeeded.Load() == 0 || refused.Load() == 0 {
		t.Error("there was no race")
	}
}

// TestRaceOfADelete exchanges directories of the tree that is deleted with links that lead out.
func TestRaceOfADelete(t *testing.T) {
	w := newWorld(t)
	rounds := raceRounds() / 30
	for round := range rounds {
		for i := range 10 {
			w.file(fmt.Sprintf("tree/d%d/e/canary", i), "")
		}
		var pairs [][2]string
		for i := range 3 {
			d := fmt.Sprintf("%s/tree/d%d", w.root, i)
			w.link(w.outside, fmt.Sprintf("tree/d%d/out", i))
			pairs = append(pairs, [2]string{d + "/e", d + "/out"})
		}
		_, stop := w.attack(pairs)
		_, _, err := w.do(spec.File{Operation: spec.OperationDelete, Path: "tree", Recursive: true})
		stop()
		w.checkOutside()
		if t.Failed() {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := os.RemoveAll(w.root + "/tree"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRaceOfWholeFiles has several write and edit a file while others read it: each sees a file that was written.
func TestRaceOfWholeFiles(t *testing.T) {
	w := newWorld(t)
	content := func(i int) string { return strings.Repeat(fmt.Sprintf("%08d\n", i), 20_000) }
	w.file("f", content(0))
	ctx, cancel := context.WithCancel(t.Context())
	var writers, readers sync.WaitGroup
	for i := range 2 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for range raceRounds() / 10 {
				w.must(spec.File{Operation: spec.OperationWrite, Path: "f", Content: []byte(content(random.IntN(10)))})
			}
		})
	}
	reads := 0
	readers.Go(func() {
		for ctx.Err() == nil {
			out, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Unit: spec.UnitBytes})
			if out != strings.Repeat(out[:9], 20_000) || result.Changed || result.SHA256 != sumOf([]byte(out)) {
				t.Errorf("half a file: %d bytes, %+v", len(out), result)
				return
			}
			reads++
		}
	})
	readers.Go(func() {
		for ctx.Err() == nil {
			out, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: ".", MaxResults: 2})
			if number(result.Matches) != 2 || strings.Contains(out, temporaryPrefix) {
				t.Errorf("half a file: %s", out)
				return
			}
		}
	})
	writers.Wait()
	cancel()
	readers.Wait()
	if reads == 0 {
		t.Error("nobody read")
	}
	w.checkNothingLeft()
}

// TestRaceOfTornReads has another process's way of writing: in place. A Read says so whenever it returns a mixture.
func TestRaceOfTornReads(t *testing.T) {
	w := newWorld(t)
	const size = 512 << 10
	path := w.file("f", strings.Repeat("a", size))
	ctx, cancel := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = f.WriteAt(bytes.Repeat([]byte{'a' + byte(i%26)}, size), 0)
		}
	})
	torn := 0
	for range raceRounds() / 5 {
		out, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Unit: spec.UnitBytes})
		if out == strings.Repeat(out[:1], size) {
			continue
		}
		torn++
		if !result.Changed || result.SHA256 != "" {
			t.Errorf("a mixture, and nothing says so: %+v", result)
			break
		}
	}
	cancel()
	writer.Wait()
	t.Logf("%d mixtures", torn)
}

// TestRaceOfDenied exchanges what is denied with what isn't: a denied name stays denied, whatever else is done to it.
func TestRaceOfDenied(t *testing.T) {
	w := newWorld(t)
	w.rules.DeniedPaths = []string{"secret"}
	w.file("secret/f", canary)
	w.file("d/f", "fine")
	w.link("secret", "link")
	swaps, stop := w.attack([][2]string{{w.root + "/d", w.root + "/link"}})
	defer stop()
	for i := 0; i < raceRounds() || swaps.Load() < 10; i++ {
		for _, r := range []spec.File{
			{Operation: spec.OperationRead, Path: "d/f"}, {Operation: spec.OperationRead, Path: "link/f"},
			{Operation: spec.OperationGrep, Path: ".", Pattern: "CANARY"},
			{Operation: spec.OperationWrite, Path: "d/f", Content: []byte("fine")},
		} {
			if out, _, _ := w.do(r); strings.Contains(out, "nobody") {
				t.Fatalf("%s %s: %s", r.Operation, r.Path, out)
			}
		}
	}
	stop()
	if w.content("secret/f") != canary {
		t.Error("what is denied was changed")
	}
}

// TestRaceOfAWalk has everything come, go and change its type while it is walked.
func TestRaceOfAWalk(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	for i := range 2 {
		churn.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for ctx.Err() == nil {
				path := filepath.Join(w.root, fmt.Sprintf("d%d/%d", random.IntN(3), random.IntN(5)))
				_ = os.MkdirAll(filepath.Dir(path), 0o755)
				switch random.IntN(6) {
				case 0:
					// Opening a FIFO would wait.
					if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
						_, _ = f.WriteString("needle")
						f.Close()
					}
				case 1:
					_ = os.Mkdir(path, 0o755)
				case 2:
					_ = os.Symlink(w.outside, path)
				case 3:
					_ = unix.Mkfifo(path, 0o666)
				case 4:
					_ = os.RemoveAll(path)
				case 5:
					_ = os.RemoveAll(filepath.Dir(path))
				}
			}
		})
	}
	for range raceRounds() {
		for _, r := range []spec.File{
			{Operation: spec.OperationList, Recursive: true}, {Operation: spec.OperationGlob, Pattern: "**"}, {Operation: spec.OperationGrep, Pattern: "needle|nobody"},
		} {
			r.Path = "."
			out, _, err := w.do(r)
			if err != nil || strings.Contains(out, "nobody") || strings.Contains(out, "canary") {
				t.Errorf("%s: %q, %v", r.Operation, out, err)
			}
		}
	}
	cancel()
	churn.Wait()
	w.checkOutside()
}
