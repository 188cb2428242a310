// Package version says which build a program is. A release sets it when it links:
//
//	-ldflags "-X toolcall.dev/operator/internal/version.release=v1.2.3 -X toolcall.dev/operator/internal/version.commit=0123abc"
//
// Otherwise it is the commit that the go command saw.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

var release, commit string

// String is the release, or else "dev-" and the commit that the program was built from.
func String() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return development(info.Settings)
}

func development(settings []debug.BuildSetting) string {
	commit, dirty := "unknown", ""
	for _, setting := range settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			dirty = "+changes"
		}
	}
	return "dev-" + commit[:min(len(commit), 12)] + dirty
}

// Line is the version with all that tells builds apart.
func Line(program string) string {
	built := ""
	if commit != "" {
		built = "commit " + commit[:min(len(commit), 12)] + ", "
	}
	return fmt.Sprintf("%s %s (%s%s, %s/%s)", program, String(), built, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
