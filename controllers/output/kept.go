package output

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
)

// Of says of which call output is kept, and how much.
type Of struct {
	Call types.NamespacedName
	UID  types.UID
	// KeyHash is the key of the process that has the call.
	KeyHash string
	// StatusBytes is how much of each stream the status keeps, KeepBytes how much is stored if that is more.
	StatusBytes, KeepBytes int64
}

// isKept says that a stream that exceeds the status is to be stored.
func (of *Of) isKept() bool { return of.KeepBytes > of.StatusBytes && of.KeyHash != "" }

// keptCall is a call that runs, or whose output is being stored.
type keptCall struct {
	Of
	// streams are the artifacts, too.
	streams map[output.Key]*keptStream
	// stopWatching ends the questions to the runner of a call that runs.
	stopWatching context.CancelFunc
	// reported is when the call's result came; zero before that.
	reported time.Time
}

// keptStream is a stream that is being stored, or was.
type keptStream struct {
	source *runnerStream
	writer *store.Writer
	cancel context.CancelFunc
	// err is why it isn't stored at all.
	err error
	// isTold says that the log says what the store fails at.
	isTold bool
}

// status is how far the stream is stored, once its process has ended. Where the operator's end stopped the writer, the next operator
// stores the rest.
func (s *keptStream) status() store.Status {
	if s.writer == nil {
		return store.Status{State: store.Lost, Err: s.err}
	}
	status := s.writer.Status()
	if status.State == store.Growing {
		status.State = store.Storing
	}
	return status
}

func (of *Of) key(stream output.Stream) output.Key {
	return output.Key{Namespace: of.Call.Namespace, Name: of.Call.Name, UID: of.UID, Stream: stream}
}

// limit is how much of a stream is stored. An artifact is whole or not at all: its size was bounded when it was collected.
func (of *Of) limit(key output.Key) int64 {
	if key.Artifact != "" {
		return store.MaxLimit
	}
	return min(of.KeepBytes, store.MaxLimit)
}

// finish tells the source of a stream what became of its process.
func (s *keptStream) finish(isGone bool) {
	s.source.end()
	if isGone {
		s.source.lose()
	}
}

// forgetLost has streams tried again whose runner was away for too long while the command ran.
func (c *keptCall) forgetLost() {
	for key, s := range c.streams {
		if s.status().State == store.Lost {
			delete(c.streams, key)
		}
	}
}
