package docurl

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPagesAreWhereTheyArePublished(t *testing.T) {
	if got := Page("output.md"); got != "docs/output.md" {
		t.Errorf("without an address: %s", got)
	}
	base = "https://example.com/docs"
	t.Cleanup(func() { base = "" })
	if got := Reason("TimedOut"); got != "https://example.com/docs/troubleshooting.md#timedout" {
		t.Errorf("with an address: %s", got)
	}
}

// The alerts lead to the same pages.
func TestAlertsHaveTheSameBase(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../config/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(rules), "runbook: "+Page("troubleshooting.md#")) {
		t.Errorf("no alert leads to %s", Page("troubleshooting.md"))
	}
}

// The pages that programs name are there.
func TestPagesExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`docurl\.Page\("([^"#]+)[^"]*"\)`)
	found := 0
	err := filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".go" {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			if _, err := os.Stat(filepath.Join("../../docs", m[1])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 3 {
		t.Errorf("only %d pages are named", found)
	}
}
