package programs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHelpersByNameAndByFile(t *testing.T) {
	own := map[string][]string{"python3": {"/opt/tool"}}
	for name, c := range map[string]struct {
		entry, real string
		want        []string
	}{
		"a version":             {"python3", "/usr/bin/python3.11", []string{"sh", "/opt/tool"}},
		"the file's name":       {"awk", "/usr/bin/mawk", []string{"sh", "sh"}},
		"a prefix of its own":   {"python3.12", "/opt/python/bin/python3.12", []string{"sh", "/opt/python/bin/", "/opt/python/libexec/"}},
		"a triplet":             {"x86_64-linux-gnu-gcc-12", "/usr/bin/x86_64-linux-gnu-gcc-12", compilerHelpers},
		"nothing":               {"ls", "/usr/bin/ls", nil},
		"another program there": {"tool", "/opt/python/bin/tool", nil},
	} {
		if diff := cmp.Diff(c.want, helpersOf(c.entry, c.real, own)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
