package shim

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// shimName is argv[0] of a shim.
const shimName = "toolcall-shim"

// KeepSmall has the garbage collector run earlier, since this process's memory counts as the container's.
func KeepSmall() { debug.SetGCPercent(25) }

// init makes this program a shim if it was started as one.
func init() {
	if len(os.Args) == 1 && os.Args[0] == shimName {
		// In another goroutine: this one is locked to its thread, so that each of its waits would switch threads twice.
		ended := make(chan error)
		go func() { ended <- serve() }()
		if err := <-ended; err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// server is the shim's side.
type server struct {
	conn *net.UnixConn
	// commands are received while the one before may still be stopped.
	commands chan *received
}

// received is a command, which can be stopped before it is begun.
type received struct {
	request
	files   []*os.File
	ctx     context.Context
	stop    context.CancelCauseFunc
	drained chan struct{}
}

// serve runs commands until the pool closes the connection.
func serve() error {
	if err := runner.Harden(); err != nil {
		return err
	}
	KeepSmall()
	// Only the pool ends a shim, and only the first process is told that the pod ends.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	conn, err := unixConn(kernel.ControlFD)
	if err != nil {
		return err
	}
	s := &server{conn: conn, commands: make(chan *received, 1)}
	kernel.ReserveWorkers()
	if err := send(conn, &reply{Ready: true}); err != nil {
		return err
	}
	go s.receive()
	if support := runner.Prepare(); support.Missing(&rules.Rules{Beside: true}) != "" {
		runner.Discard() // no call could use its stage, and each could take it over
	}
	for c := range s.commands {
		if err := s.run(c); err != nil {
			return err
		}
	}
	return nil
}

// unixConn takes a Unix socket.
func unixConn(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "control")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// poolGone is why a command ends whose pool has ended: nobody waits for it any more.
var poolGone = runner.Stop{Reason: result.PodLost, Message: "the runner has ended", Kill: true}

// receive reads requests until the pool closes the connection, which stops the command.
func (s *server) receive() {
	defer close(s.commands)
	// last is the command that what follows is for. Requests come in the order in which they were sent.
	var last *received
	for {
		var r request
		files, err := receive(s.conn, &r, math.MaxInt32)
		switch {
		case err != nil:
			if last != nil {
				last.stop(poolGone)
			}
			return
		case r.Run != nil:
			last = newReceived(r, files)
			s.commands <- last
		case last == nil:
		case r.Stop != nil:
			last.stop(*r.Stop)
		case r.Drained:
			close(last.drained)
		}
	}
}

func newReceived(r request, files []*os.File) *received {
	c := &received{request: r, files: files, drained: make(chan struct{})}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	return c
}

// run runs a command to its end, and prepares for the next one.
func (s *server) run(c *received) error {
	defer closeAll(c.files)
	pipes := &runner.Pipes{Drained: c.drained, Started: func(at time.Time) {
		// When it fails, so does what follows.
		_ = send(s.conn, &reply{Started: &at})
	}}
	copy(pipes.Child[:], c.files)
	cmd := c.Run.command()
	if more := c.files[len(pipes.Child):]; len(more) > 0 {
		cmd.DirFD = more[0]
	}
	cmd.Beside = true
	outcome := runner.Execute(c.ctx, cmd, pipes)
	if err := send(s.conn, &reply{Ended: &outcome, Reusable: !hasChildren()}); err != nil {
		return err
	}
	// What fails here mostly fails between two calls: the next one gets another shim.
	kernel.ReserveWorkers()
	if cmd.Rules != nil && cmd.Rules.Programs != nil {
		runner.Prepare()
	}
	return nil
}

func hasChildren() bool {
	_, _, err := kernel.Peek()
	return !errors.Is(err, unix.ECHILD)
}
