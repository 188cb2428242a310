package files

import (
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

// Source is a regular file that is sent part by part. Whoever has it calls its methods one at a time, and Close at the end.
type Source struct {
	Opened
	// SHA256 is of the content when it was summed.
	SHA256 string

	// opened is when it was looked at.
	opened time.Time
	// sum is of the bytes before summed.
	sum    hash.Hash
	summed int64
	// again is of the bytes before sent, which were sent in their order.
	again hash.Hash
	sent  int64
}

// OpenSource opens the file that Path of a request names, below Rules.ReadPaths.
func OpenSource(ctx context.Context, rules *Rules, r *spec.File) (*Source, error) {
	c, err := newCall(ctx, rules, r, false)
	if err != nil {
		return nil, err
	}
	p, err := c.resolve(r.Path, how{follow: true})
	if err != nil {
		return nil, err
	}
	defer p.close()
	o, err := p.open()
	if err != nil {
		return nil, err
	}
	return &Source{Opened: *o, SHA256: sums.get(&o.before), opened: time.Now(), sum: sha256.New(), again: sha256.New()}, nil
}

// newCall is a request without an operation.
func newCall(ctx context.Context, rules *Rules, r *spec.File, writes bool) (*call, error) {
	if err := sys.CheckKernel(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	compiled, err := rules.compile(writes)
	if err != nil {
		return nil, err
	}
	return &call{ctx: ctx, rules: compiled, req: r, redacted: map[string]int64{}}, nil
}

// SumSome sums at most so many more bytes. It says whether that was the last of them; then SHA256 is known.
func (s *Source) SumSome(ctx context.Context, most int64) (done bool, err error) {
	if s.SHA256 != "" {
		return true, nil
	}
	end := min(s.Size, s.summed+most)
	n, err := sys.CopyPart(ctx, s.sum, s.fd, sys.Span{Start: s.summed, End: end})
	s.summed += n
	switch {
	case err != nil:
		return false, sys.FileError("read", s.Path, err)
	case s.summed < end:
		return false, s.changed()
	case end < s.Size:
		return false, nil
	}
	if err := s.check(false); err != nil {
		return false, err
	}
	s.SHA256 = hexSum(s.sum)
	sums.add(&s.before, s.opened, s.SHA256)
	return true, nil
}

// ReadAt fills a buffer from an offset, up to the end of the file. Where all of the file was read in its order, the last part
// comes only if the content is the one that was summed; otherwise only if nothing tells that it was written to.
func (s *Source) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	want := int(min(int64(len(p)), max(s.Size-offset, 0)))
	read, err := sys.ReadInto(ctx, s.fd, p[:want], offset)
	if err != nil {
		return 0, sys.FileError("read", s.Path, err)
	}
	if len(read) < want {
		return 0, s.changed()
	}
	if offset == s.sent {
		s.again.Write(p[:want])
		s.sent += int64(want)
	}
	if s.sent == s.Size && offset+int64(want) == s.Size && hexSum(s.again) != s.SHA256 {
		sums.remove(&s.before)
		return 0, s.changed()
	}
	if want == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return want, s.check(false)
}

const (
	// maxSums is how many checksums are remembered, and sumTime for how long: a file that is mapped can change without its times.
	maxSums = 64
	sumTime = time.Minute
	// sumAge is how old the last change of a file must be, when it is opened, for its checksum to be remembered: another change in the
	// same tick of the kernel's clock leaves the same time.
	sumAge = 2 * time.Second
)

// sums are the checksums of files that were read last, so that a file which a client reads in parts isn't summed whole for each part.
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
