package runner

import (
	"context"
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolcall.dev/operator/internal/result"
)

// MemoryGroup is the control group that limits the memory of this process, and of all others in its container.
type MemoryGroup struct {
	root    fs.FS
	dir     string
	version int
}

// FindMemoryGroup returns the group; nil if its memory can't be read.
func FindMemoryGroup() *MemoryGroup { return findMemoryGroup(os.DirFS("/")) }

func findMemoryGroup(root fs.FS) *MemoryGroup {
	for g := range controlGroups(root, "memory") {
		if _, known := g.number(g.names().used); known {
			return &g
		}
	}
	return nil
}

// controlGroups are the places where this process's group of a controller can be. In a container the mount shows only the group,
// whatever the path of the group is.
func controlGroups(root fs.FS, controller string) iter.Seq[MemoryGroup] {
	return func(yield func(MemoryGroup) bool) {
		groups, err := fs.ReadFile(root, "proc/self/cgroup")
		if err != nil {
			return
		}
		for line := range strings.Lines(string(groups)) {
			// hierarchy:controllers:path, version 2 being 0::path
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(fields) < 3 {
				continue
			}
			mount, version := "sys/fs/cgroup", 2
			switch {
			case strings.Contains(","+fields[1]+",", ","+controller+","):
				mount, version = path.Join("sys/fs/cgroup", controller), 1
			case fields[1] != "":
				continue
			}
			for _, dir := range []string{path.Join(mount, fields[2]), mount} {
				if !yield(MemoryGroup{root, dir, version}) {
					return
				}
			}
		}
	}
}

func (g *MemoryGroup) read(name string) string {
	data, _ := fs.ReadFile(g.root, path.Join(g.dir, name))
	return string(data)
}

// number is that of a file.
func (g *MemoryGroup) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(g.read(name)), 10, 64)
	return n, err == nil
}

// field is a number in a file of several, each with its name.
func field(data, name string) (int64, bool) {
	for line := range strings.Lines(data) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// memoryNames are the names of a version's files, and of the fields for memory that the kernel takes back when it needs
// to.
type memoryNames struct {
	used, limit, events string
	reclaimable         []string
}

func (g *MemoryGroup) names() memoryNames {
	if g.version == 1 {
		return memoryNames{
			"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control", []string{"total_inactive_file", "total_active_file"},
		}
	}
	return memoryNames{"memory.current", "memory.max", "memory.events", []string{"inactive_file", "active_file", "slab_reclaimable"}}
}

// unlimited is near what version 1 says for no limit.
const unlimited = math.MaxInt64 >> 2

// Limit returns the limit in bytes. ok is false when there is none.
func (g *MemoryGroup) Limit() (limit int64, ok bool) {
	limit, ok = g.number(g.names().limit)
	return limit, ok && limit > 0 && limit < unlimited
}

// EndsTogether says whether the kernel kills all processes of the group when it kills one of them for memory. The kubelet has it
// do so in containers of version 2.
func (g *MemoryGroup) EndsTogether() bool {
	together, _ := g.number("memory.oom.group")
	return g.version == 2 && together == 1
}

// Used returns how many bytes are in use, among them copies of files that the kernel can drop.
func (g *MemoryGroup) Used() int64 {
	used, _ := g.number(g.names().used)
	return used
}

// Needed returns how many bytes are in use that the kernel can't drop.
func (g *MemoryGroup) Needed() int64 {
	names := g.names()
	needed, _ := g.number(names.used)
	stat := g.read("memory.stat")
	for _, name := range names.reclaimable {
		n, _ := field(stat, name)
		needed -= n
	}
	return max(needed, 0)
}

// Memory is that of a container.
type Memory interface {
	// Limit is how many bytes there are; ok is false when there is no limit.
	Limit() (limit int64, ok bool)
	// Used is how many bytes are in use, Needed how many of them the kernel can't take back. Needed takes longer to find out.
	Used() int64
	Needed() int64
}

const (
	// memoryPercent is how much of the limit may be needed.
	memoryPercent = 95
	// growth is how many bytes a container may come to need in a second: processors write little more.
	growth = 4 << 30
	// The next look is when the memory could be used up, within these bounds. A command that takes the rest of the memory
	// between two looks meets the kernel first.
	minLook, maxLook = 2 * time.Millisecond, 100 * time.Millisecond
	// limitLook is for a container without a limit: it may get one.
	limitLook = time.Second
)

// lookAtMemory returns how many bytes a container may need, whether it needs more, and when to look again.
func lookAtMemory(m Memory) (threshold int64, isExceeded bool, next time.Duration) {
	limit, ok := m.Limit()
	if !ok {
		return 0, false, limitLook
	}
	threshold = limit / 100 * memoryPercent
	left := threshold - m.Used()
	if left <= 0 {
		left = threshold - m.Needed()
	}
	if left <= 0 {
		return threshold, true, minLook
	}
	return threshold, false, min(max(time.Duration(float64(left)/growth*float64(time.Second)), minLook), maxLook)
}

// nearlyOutOfMemory is why a command that has its container for itself is ended.
var nearlyOutOfMemory = Stop{
	Reason: result.OOMKilled, Kill: true,
	Message: "The command was killed because the container had used 95 % of its memory.",
}

// withinLimit returns a context for a command that has its container for itself. Where the kernel kills all processes of a
// container together for memory, this one among them, the context ends shortly before, so that the outcome of the command
// isn't lost. Otherwise it is ctx: the kernel kills the command alone. stop ends the watch; it must be called.
func withinLimit(ctx context.Context) (within context.Context, stop func()) {
	g := FindMemoryGroup()
	if g == nil || !g.EndsTogether() {
		return ctx, func() {}
	}
	return withinMemory(ctx, g)
}

func withinMemory(ctx context.Context, m Memory) (within context.Context, stop func()) {
	within, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { WatchMemory(within, m, func(int64) { cancel(nearlyOutOfMemory) }) })
	return within, func() {
		cancel(nil)
		watch.Wait()
	}
}

// WatchMemory calls exceeded at each look at which more memory is needed than may be, until the context ends.
func WatchMemory(ctx context.Context, m Memory, exceeded func(threshold int64)) {
	for ctx.Err() == nil {
		threshold, isExceeded, next := lookAtMemory(m)
		if isExceeded {
			exceeded(threshold)
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
		}
	}
}

// CgroupOOMKills returns how many processes of this process's control group the kernel has killed for memory. known is
// false if that can't be read.
func CgroupOOMKills() (count uint64, known bool) {
	return cgroupOOMKills(os.DirFS("/"))
}

func cgroupOOMKills(root fs.FS) (uint64, bool) {
	for g := range controlGroups(root, "memory") {
		if n, known := field(g.read(g.names().events), "oom_kill"); known {
			return uint64(n), true
		}
	}
	return 0, false
}
