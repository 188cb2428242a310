package sandbox

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childVariable makes the test binary act as a command under test.
const childVariable = "SANDBOX_TEST_CHILD"

func TestMain(m *testing.M) {
	name := os.Getenv(childVariable)
	if name == "" {
		goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("toolcall.dev/operator/internal/runner/sandbox/kernel.worker.serve"))
		return
	}
	child := children[name]
	if child == nil {
		fmt.Println("no such child:", name)
		os.Exit(99)
	}
	child(os.Args[1:])
	os.Exit(0)
}
