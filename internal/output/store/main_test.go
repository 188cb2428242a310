package store

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// serverProgram is the S3 server that the tests start.
var serverProgram string

// TestMain builds the server, before the time limit of any test begins. When it is built, the go command has nothing to do.
func TestMain(m *testing.M) {
	if err := buildServer(); err != nil {
		fmt.Fprintln(os.Stderr, "build the S3 server:", err)
		os.Exit(1)
	}
	// A connection that nobody uses was seen to outlive CloseIdleConnections, once. It ends by itself after 90 seconds.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func buildServer() error {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return err
	}
	serverProgram = filepath.Join(root, "bin", "test", "store")
	build := exec.Command("go", "-C", filepath.Join(root, "hack", "images", "store"), "build", "-trimpath", "-o", serverProgram, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}
