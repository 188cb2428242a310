package kernel

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("toolcall.dev/operator/internal/runner/sandbox/kernel.worker.serve"))
}
