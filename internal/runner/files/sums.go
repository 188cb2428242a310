package files

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSums is how many checksums are remembered, and sumTime for how long: a file that is mapped can change without its times.
	maxSums = 64
	sumTime = time.Minute
	// sumAge is how old the last change of a file must be, when it is opened, for its checksum to be remembered: another change in the
	// same tick of the kernel's clock leaves the same time.
	sumAge = 2 * time.Second
)

// sums are the checksums of files that were read last. Who reads a file in parts, because a policy has it that way, doesn't have all of
// it summed for each of them.
var sums = knownSums{age: sumAge}

// fileState is a file as it was: a write changes its ctime, which nobody can set.
type fileState struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stateOf(st *unix.Stat_t) fileState { return fileState{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim} }

// knownSum is the checksum of a file that was opened then.
type knownSum struct {
	state  fileState
	sum    string
	opened time.Time
}

// knownSums forgets the oldest.
type knownSums struct {
	age time.Duration
	mu  sync.Mutex
	// all are in the order in which they came.
	all []knownSum
}

// get returns the checksum of a file; empty if it isn't known.
func (k *knownSums) get(st *unix.Stat_t) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := slices.IndexFunc(k.all, func(one knownSum) bool { return one.state == stateOf(st) && time.Since(one.opened) < sumTime })
	if at < 0 {
		return ""
	}
	return k.all[at].sum
}

// add remembers the checksum of a file that was in a state when it was opened.
func (k *knownSums) add(st *unix.Stat_t, opened time.Time, sum string) {
	if opened.Sub(time.Unix(st.Ctim.Unix())) < k.age {
		return
	}
	k.remove(st)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, knownSum{stateOf(st), sum, opened})
	k.all = k.all[max(len(k.all)-maxSums, 0):]
}

// remove forgets a checksum that turned out to be wrong.
func (k *knownSums) remove(st *unix.Stat_t) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(one knownSum) bool { return one.state == stateOf(st) })
}
