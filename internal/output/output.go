// Package output reads what the processes of calls wrote.
package output

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Stream is stdout or stderr.
type Stream string

// The streams of a call.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Key names a stream of a call.
type Key struct {
	Namespace, Name string
	UID             types.UID
	Stream          Stream
	// Artifact is the path of an artifact. Stream is empty then.
	Artifact string
}

// Info is what is known of a stream.
type Info struct {
	// Bytes is how many the process has written so far.
	Bytes int64
	// Complete says that there will be no more.
	Complete bool
	// SHA256 is that of all bytes, in hexadecimal digits; only of a complete stream.
	SHA256 string
	// Missing is the part in the middle that wasn't kept: from Missing.Start up to, not including, Missing.End. Empty if all is there.
	Missing Range
	// Lost says that Missing is more than was to be left out: the disk of the pod was full, broken or too slow.
	Lost bool
}

// Range is a part of a stream.
type Range struct{ Start, End int64 }

// Source has streams of calls.
type Source interface {
	// Open returns a stream, or ErrNotFound if this source doesn't have it (any more).
	Open(ctx context.Context, key Key) (Reader, error)
}

// Reader reads one stream. Its methods may be called by several goroutines.
type Reader interface {
	Info() Info
	// ReadAt reads what is kept at an offset: at most len(p) bytes, and at least one. At the end of a complete stream the
	// error is io.EOF, at the end of one that grows ErrNoMore, in the part that wasn't kept a *MissingError, which says where to go on.
	ReadAt(ctx context.Context, p []byte, offset int64) (int, error)
	// Wait returns when the stream has more than n bytes or is complete.
	Wait(ctx context.Context, n int64) error
	// Close is called once, and nothing after it.
	Close()
}

var (
	// ErrNotFound says that a source doesn't have a stream.
	ErrNotFound = errors.New("the stream is not kept here")
	// ErrDamaged says that what a source has of a stream isn't what was put there.
	ErrDamaged = errors.New("the stream is damaged")
	// ErrNoMore says that the process hasn't written more yet.
	ErrNoMore = errors.New("the process has not written more yet")
)

// MissingError says that the part of a stream that was asked for wasn't kept.
type MissingError struct {
	// Next is the offset of the first byte that is kept behind it.
	Next int64
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the part before offset %d was not kept", e.Next)
}
