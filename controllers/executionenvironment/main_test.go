package executionenvironment_test

import (
	"os"
	"testing"

	"toolcall.dev/operator/controllers/internal/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Suite.Run(m)) }
