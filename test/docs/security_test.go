package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var rightsRow = regexp.MustCompile("(?m)^\\| (in `toolcall-system` alone: )?`([a-z/.0-9]+)` \\| ([a-z ]+) \\| [^|]+ \\|$")

// The security page lists what the operator is granted: nothing more and nothing less.
func TestSecurityPageListsTheOperatorsRights(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, "docs/security.md"), "## The operator's own rights\n")
	if !found {
		t.Fatal("docs/security.md has no section about the operator's own rights")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for _, row := range rightsRow.FindAllStringSubmatch(section, -1) {
		for verb := range strings.FieldsSeq(row[3]) {
			listed = append(listed, fmt.Sprintf("%t %s %s", row[1] != "", verb, row[2]))
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(granted(t), listed); diff != "" {
		t.Errorf("the page doesn't list what config/rbac/role.yaml grants (-granted +listed):\n%s", diff)
	}
}

var (
	testName = regexp.MustCompile("`(Test\\w+)(?:(…)|/([\\w-]+))?`")
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// allTests gives the files of each test, together where packages use the same name.
func allTests(t *testing.T) map[string]string {
	t.Helper()
	tests := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{".git", "bin", "node_modules"}, entry.Name()) {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range testFunc.FindAllStringSubmatch(string(source), -1) {
			tests[found[1]] += string(source)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// Every test that a page names is there; with an ellipsis, one that begins so.
func TestPagesNameTestsThatAreThere(t *testing.T) {
	t.Parallel()
	tests, pages, named := allTests(t), everyPage(t), map[string]int{}
	for _, page := range pages {
		for _, name := range testName.FindAllStringSubmatch(read(t, page), -1) {
			named[page]++
			isThere := tests[name[1]] != "" && (name[3] == "" || strings.Contains(tests[name[1]], `"`+name[3]+`"`))
			for test := range tests {
				isThere = isThere || name[2] != "" && strings.HasPrefix(test, name[1])
			}
			if !isThere {
				t.Errorf("there is no test %s, which %s names", name[0], page)
			}
		}
	}
	for _, page := range []string{"docs/reliability.md", "docs/security.md", "docs/sessions.md", "test/mutations/README.md"} {
		if slices.Contains(pages, page) && named[page] < 15 {
			t.Errorf("%s names %d tests only", page, named[page])
		}
	}
}

// Each rule of the protocol of sessions names tests that show it.
func TestSessionsPageNamesItsTests(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, "docs/sessions.md"), "## One write for a call\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rules := regexp.MustCompile(`(?m)^\| (\d+) \| .+ \| ([^|]+) \|$`).FindAllStringSubmatch(section, -1)
	for i, rule := range rules {
		if rule[1] != fmt.Sprint(i+1) || !testName.MatchString(rule[2]) {
			t.Errorf("rule %d names no test in its last cell: %s", i+1, rule[0])
		}
	}
	if len(rules) != 13 {
		t.Errorf("found %d rules", len(rules))
	}
}

// The security page promises nothing about sessions that no test shows, but for what nothing holds.
func TestSecurityPageNamesTheTestsOfSessions(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, "docs/security.md"), "\n## Sessions\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| a call may try to") {
			continue
		}
		rows++
		if isHeld := !strings.Contains(line, " | **nothing**: "); isHeld != testName.MatchString(line) {
			t.Errorf("this row names no test, or one where nothing holds: %s", line)
		}
	}
	if rows < 8 {
		t.Errorf("found %d rows only", rows)
	}
}

// The security page promises nothing about walls that no test shows: each row of its table names tests.
func TestSecurityPageNamesItsTests(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, "docs/security.md"), "## Walls around a call\n")
	section, _, _ = strings.Cut(section, "\n### ")
	rows := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| a command may try to") {
			continue
		}
		rows++
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 5 || !testName.MatchString(cells[4]) {
			t.Errorf("this row names no test in its fifth cell: %s", line)
		}
	}
	if rows < 15 {
		t.Errorf("found %d rows only", rows)
	}
}

// What one tenant can't do to another names tests for process IDs, limits per user and transfers.
func TestSecurityPageNamesTheTestsOfTenants(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, "docs/security.md"), "\n## What a tenant can and can't do\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range []string{"| take all process IDs of a node |", "| use up what the kernel counts for a user:", "| take all slots for transfers of files |"} {
		_, rest, _ := strings.Cut(section, row)
		line, _, _ := strings.Cut(rest, "\n")
		if !testName.MatchString(line) {
			t.Errorf("this row isn't there, or names no test: %s", row)
		}
	}
}

// granted reads the generated roles, one line for each verb on each resource.
func granted(t *testing.T) []string {
	t.Helper()
	var all []string
	for document := range strings.SplitSeq(read(t, "config/rbac/role.yaml"), "\n---\n") {
		role := &rbacv1.Role{}
		if err := yaml.Unmarshal([]byte(document), role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					name := strings.TrimSuffix(resource+"."+rule.APIGroups[0], ".")
					all = append(all, fmt.Sprintf("%t %s %s", role.Kind == "Role", verb, name))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}
