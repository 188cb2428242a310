package docs

import (
	"fmt"
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

var testName = regexp.MustCompile("`(Test\\w+)(?:/([\\w-]+))?`")

// testsIn are the tests of files, with the whole text of their files.
func testsIn(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	tests := map[string]string{}
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, path := range paths {
			relative, _ := filepath.Rel(root, path)
			source := read(t, filepath.ToSlash(relative))
			for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(source, -1) {
				tests[found[1]] = source
			}
		}
	}
	return tests
}

// Each rule of the protocol of sessions names tests that show it, and they exist.
func TestSessionsPageNamesItsTests(t *testing.T) {
	t.Parallel()
	tests := testsIn(t, "internal/*/*_test.go", "internal/dispatch/*/*_test.go", "controllers/*_test.go", "controllers/*/*_test.go", "cmd/*/*_test.go")
	_, section, _ := strings.Cut(read(t, "docs/sessions.md"), "## One write for a call\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rules := regexp.MustCompile(`(?m)^\| (\d+) \| .+ \| ([^|]+) \|$`).FindAllStringSubmatch(section, -1)
	for i, rule := range rules {
		names := testName.FindAllStringSubmatch(rule[2], -1)
		if rule[1] != fmt.Sprint(i+1) || len(names) == 0 {
			t.Errorf("rule %d names no test in its last cell: %s", i+1, rule[0])
		}
		for _, name := range names {
			if tests[name[1]] == "" {
				t.Errorf("there is no test %s, which rule %d names", name[1], i+1)
			}
		}
	}
	if len(rules) != 13 {
		t.Errorf("found %d rules", len(rules))
	}
}

// The security page promises nothing about sessions that no test shows, but for what nothing holds.
func TestSecurityPageNamesTheTestsOfSessions(t *testing.T) {
	t.Parallel()
	tests := testsIn(t, "internal/runner/*_test.go", "internal/runner/shim/*_test.go", "cmd/runner/*_test.go")
	_, section, _ := strings.Cut(read(t, "docs/security.md"), "\n## Sessions\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| a call may try to") {
			continue
		}
		rows++
		names := testName.FindAllStringSubmatch(line, -1)
		if isHeld := !strings.Contains(line, " | **nothing**: "); isHeld != (len(names) > 0) {
			t.Errorf("this row names no test, or one where nothing holds: %s", line)
		}
		for _, name := range names {
			if tests[name[1]] == "" {
				t.Errorf("there is no test %s, which this row names: %s", name[1], line)
			}
		}
	}
	if rows < 8 {
		t.Errorf("found %d rows only", rows)
	}
}

// The security page promises nothing about walls that no test shows: each row of its table names tests, and they exist.
func TestSecurityPageNamesItsTests(t *testing.T) {
	t.Parallel()
	tests := testsIn(t,
		"internal/runner/*_test.go", "internal/runner/sandbox/*_test.go", "internal/runner/sandbox/*/*_test.go", "internal/guards/*_test.go", "test/e2e/*_test.go")
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
		for _, name := range testName.FindAllStringSubmatch(line, -1) {
			source, ok := tests[name[1]]
			if !ok || name[2] != "" && !strings.Contains(source, `"`+name[2]+`"`) {
				t.Errorf("there is no test %s, which this row names: %s", name[0], line)
			}
		}
	}
	if rows < 15 {
		t.Errorf("found %d rows only", rows)
	}
}

// What one tenant can't do to another names tests that exist: process IDs, limits per user and transfers have some in any case.
func TestSecurityPageNamesTheTestsOfTenants(t *testing.T) {
	t.Parallel()
	tests := testsIn(t, "internal/*/*_test.go", "internal/*/*/*_test.go", "test/e2e/*_test.go")
	_, section, _ := strings.Cut(read(t, "docs/security.md"), "\n## What a tenant can and can't do\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range []string{"| take all process IDs of a node |", "| use up what the kernel counts for a user:", "| take all slots for transfers of files |"} {
		_, rest, _ := strings.Cut(section, row)
		line, _, _ := strings.Cut(rest, "\n")
		if !testName.MatchString(line) {
			t.Errorf("this row isn't there, or names no test: %s", row)
		}
	}
	for _, name := range testName.FindAllStringSubmatch(section, -1) {
		if tests[name[1]] == "" {
			t.Errorf("there is no test %s", name[1])
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
