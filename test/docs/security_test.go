package docs

import (
	"fmt"
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
