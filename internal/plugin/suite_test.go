package plugin

import (
	"os"
	"testing"

	"toolcall.dev/operator/internal/testing/plugintest"
)

// asPlugin in the environment has the test's program be the plugin: examples run it from a shell.
const asPlugin = "TOOLCALL_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(plugintest.Main(m, commands,
		"run -- ls", "get", "get a", "logs a", "wait a", "cancel a", "env list", "top", "tools", "delete a", "delete --all", "rerun a", "wait --all",
		"env describe a", "get --watch", "session start", "session list", "session describe a", "session end a", "session shell a",
		"session exec a -- ls", "run --session a -- ls",
	))
}
