package apiservertest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Suite is the tests of a package that share a server.
type Suite struct {
	Options
	// Setup prepares what the tests share.
	Setup func(*Server) error
	// Teardown ends what Setup began, also where that failed. The server runs still.
	Teardown func() error
	// Reads are files and folders of the project that programs read which the tests start.
	Reads []string
	// FindLeaks has goroutines reported that are left at the end, but for those that Leaks lets pass.
	FindLeaks bool
	Leaks     []goleak.Option

	server *Server
}

// Run runs the tests, with a server where one can be started, and returns the exit code. TestMain calls it.
func (s *Suite) Run(m *testing.M) int {
	quietly()
	code := 0
	if Assets() == "" {
		fmt.Fprintln(os.Stderr, "some tests are skipped:", ErrNoAssets)
		code = m.Run()
	} else {
		code = s.runWithServer(m)
	}
	if code != 0 || !s.FindLeaks {
		return code
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := goleak.Find(s.Leaks...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (s *Suite) runWithServer(m *testing.M) int {
	server, err := Start(s.Options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		var err error
		if s.Teardown != nil {
			err = s.Teardown()
		}
		if err := errors.Join(err, server.Stop()); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}()
	if s.Setup != nil {
		if err := s.Setup(server); err != nil {
			fmt.Fprintln(os.Stderr, "set up the API server:", err)
			return 1
		}
	}
	s.server = server
	return m.Run()
}

// Server is the server; nil where there is none.
func (s *Suite) Server() *Server { return s.server }

// Need returns the server, or skips the test where there is none.
func (s *Suite) Need(t testing.TB) *Server {
	t.Helper()
	Needs(t)
	if s.CRDs {
		Reads(t, "config/crd")
	}
	Reads(t, s.Reads...)
	return s.server
}
