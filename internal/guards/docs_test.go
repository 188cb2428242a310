package guards

import (
	"os"
	"strings"
	"testing"
)

// The API's field comment sends readers there for the list.
func TestTheSecurityPageListsTheProtectedVariables(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range defaultProtectedEnv() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/security.md doesn't list %s", name)
		}
	}
}

// The table of remedies of the plugin sends readers there for the names of tools and their arguments.
func TestTheGuardsPageListsTheNamesOfTools(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guards.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range toolKinds() {
		for name := range strings.FieldsSeq(kind.names) {
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/guards.md doesn't list %s", name)
			}
		}
	}
}
