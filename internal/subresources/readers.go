package subresources

import (
	"sync"

	"k8s.io/utils/clock"
)

// maxReaders bounds the requests for output that are served at the same time. The API server bounds requests that last long in no way.
// Who administers a namespace makes as many users as they like there. One that reads a stream of its own takes 96 KiB at most.
const maxReaders = 2560

// bufferSize is what one request keeps of a stream, while it has something to send.
const bufferSize = 32 << 10

// readers bounds the requests for output.
type readers struct {
	*slots
	buffers sync.Pool
}

func newReaders(c clock.PassiveClock) *readers {
	return &readers{slots: newSlots("readers of output", maxReaders, c), buffers: sync.Pool{New: func() any { return new([bufferSize]byte) }}}
}
