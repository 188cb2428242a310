package host

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Lock keeps two commands from changing the cluster at once. It is a socket
// without a file: it can't outlive its holder and leaves nothing behind.
func Lock(name string, patience time.Duration) (release func(), err error) {
	deadline := time.Now().Add(patience)
	for {
		l, err := net.Listen("unix", name)
		if err == nil {
			return func() { l.Close() }, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("taking the cluster's lock: %w", err)
		}
		if time.Now().After(deadline) {
			return nil, errors.New("another command is starting or stopping the cluster: wait for it to end, then try again")
		}
		time.Sleep(100 * time.Millisecond)
	}
}
