package programs

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHelpersByNameAndByFile(t *testing.T) {
	own := map[string][]string{"python3": {"/opt/tool"}}
	python := []string{"sh", "ldconfig", "uname"}
	for name, c := range map[string]struct {
		entry, real string
		want        []string
	}{
		"a version":       {"python3", "/usr/bin/python3.11", append(slices.Clone(python), "/opt/tool")},
		"the file's name": {"awk", "/usr/bin/mawk", []string{"sh", "sh"}},
		"a prefix of its own": {
			"python3.12", "/opt/python/bin/python3.12", append(slices.Clone(python), "/opt/python/bin/", "/opt/python/lib/", "/opt/python/libexec/"),
		},
		"a JDK":                 {"java", "/opt/jdk/bin/java", []string{"/opt/jdk/bin/", "/opt/jdk/lib/", "/opt/jdk/libexec/"}},
		"a triplet":             {"x86_64-linux-gnu-gcc-12", "/usr/bin/x86_64-linux-gnu-gcc-12", compilerHelpers},
		"nothing":               {"ls", "/usr/bin/ls", nil},
		"another program there": {"tool", "/opt/python/bin/tool", nil},
	} {
		if diff := cmp.Diff(c.want, helpersOf(c.entry, c.real, own)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
