package files

import (
	"os"
	"testing"

	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.Main(m, Commands)) }
