package store

import "errors"

// sourceError is an error of where the stream comes from, not of the store.
type sourceError struct{ error }

func (e *sourceError) Error() string { return "read the stream: " + e.error.Error() }

func (e *sourceError) Unwrap() error { return e.error }

// errPodLost is why a stream whose source has its end is lost.
var errPodLost = errors.New("the call's pod didn't have all of it: its disk was full, broken or too slow, or what held it was killed")
