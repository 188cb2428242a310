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
