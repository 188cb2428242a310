package guards

import (
	"os"
	"regexp"
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
	// Every name that the mapping reads is a string literal in this file.
	source, err := os.ReadFile("tool.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, call := range regexp.MustCompile(`args\.\w+\(([^()]*)\)`).FindAllStringSubmatch(string(source), -1) {
		for _, name := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(call[1], -1) {
			found++
			if !strings.Contains(string(page), "`"+name[1]+"`") {
				t.Errorf("docs/guards.md doesn't list the argument %s", name[1])
			}
		}
	}
	if found < 23 {
		t.Errorf("only %d names of arguments", found)
	}
}
