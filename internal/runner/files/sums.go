package files

import (
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
var sums = knownSums{age: sumAge, known: map[fileState]knownSum{}}

// fileState is a file as it was: a write changes its ctime, which nobody can set.
type fileState struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stateOf(st *unix.Stat_t) fileState { return fileState{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim} }

// knownSum is a checksum, of a file that was opened then.
type knownSum struct {
	sum    string
	opened time.Time
}

// knownSums forgets the oldest. The zero value isn't ready.
type knownSums struct {
	age   time.Duration
	mu    sync.Mutex
	known map[fileState]knownSum
	order []fileState
}

func (k *knownSums) get(st *unix.Stat_t) (sum string, isKnown bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, isKnown := k.known[stateOf(st)]
	return known.sum, isKnown && time.Since(known.opened) < sumTime
}

// add remembers the checksum of a file that was in a state when it was opened.
func (k *knownSums) add(st *unix.Stat_t, opened time.Time, sum string) {
	if opened.Sub(time.Unix(st.Ctim.Unix())) < k.age {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	state := stateOf(st)
	if _, isKnown := k.known[state]; !isKnown {
		k.order = append(k.order, state)
	}
	k.known[state] = knownSum{sum, opened}
	if len(k.order) > maxSums {
		delete(k.known, k.order[0])
		k.order = k.order[1:]
	}
}

// remove forgets a checksum that turned out to be wrong.
func (k *knownSums) remove(st *unix.Stat_t) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, stateOf(st))
}
