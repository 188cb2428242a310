package audit_test

import (
	"os"
	"testing"

	"toolcall.dev/operator/internal/testing/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Suite.Run(m)) }
