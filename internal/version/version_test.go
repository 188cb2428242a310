package version

import (
	"runtime/debug"
	"testing"
)

func TestADevelopmentBuildNamesItsCommit(t *testing.T) {
	t.Parallel()
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef"}
	for want, settings := range map[string][]debug.BuildSetting{
		"dev-unknown":              nil,
		"dev-0123456789ab":         {revision, {Key: "vcs.modified", Value: "false"}},
		"dev-0123456789ab+changes": {revision, {Key: "vcs.modified", Value: "true"}},
	} {
		if got := development(settings); got != want {
			t.Errorf("%v: %s, want %s", settings, got, want)
		}
	}
}
