package plugintest

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"syscall"
)

func SortedFields(text string) string {
	fields := strings.Fields(text)
	slices.Sort(fields)
	return strings.Join(fields, " ")
}

// LockedBuffer is a buffer for several goroutines.
type LockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *LockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *LockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

// Unwritable fails each write.
type Unwritable struct{ Err error }

func (u Unwritable) Write([]byte) (int, error) { return 0, u.Err }

// BrokenPipe has no reader any more, FullDisk no place.
var (
	BrokenPipe = Unwritable{syscall.EPIPE}
	FullDisk   = Unwritable{syscall.ENOSPC}
)

// Rows are the lines of a table, each with single spaces, without the age in the last column of a row.
func Rows(out string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(out) {
		if cells := strings.Fields(line); len(cells) > 0 {
			all[cells[0]] = strings.Join(cells, " ")
		}
	}
	return all
}
