package runner

import (
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
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

func (g *MemoryGroup) read(name string) (string, error) {
	data, err := fs.ReadFile(g.root, path.Join(g.dir, name))
	return string(data), err
}

func (g *MemoryGroup) number(name string) (int64, bool) {
	data, err := g.read(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(data), 10, 64)
	return n, err == nil
}

// memoryNames are the names of a version's files, and of the fields for memory that the kernel takes back when it needs
// to.
type memoryNames struct {
	used, limit string
	reclaimable []string
}

func (g *MemoryGroup) names() memoryNames {
	if g.version == 1 {
		return memoryNames{"memory.usage_in_bytes", "memory.limit_in_bytes", []string{"total_inactive_file", "total_active_file"}}
	}
	return memoryNames{"memory.current", "memory.max", []string{"inactive_file", "active_file", "slab_reclaimable"}}
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
	stat, _ := g.read("memory.stat")
	for line := range strings.Lines(stat) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, reclaimable := range names.reclaimable {
			if name == reclaimable {
				n, _ := strconv.ParseInt(value, 10, 64)
				needed -= n
			}
		}
	}
	return max(needed, 0)
}
