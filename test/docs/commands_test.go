package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/internal/testing/full"
)

// notRun starts a marker that keeps a block from being run. What follows is the reason.
const notRun = "not run: "

// never are commands that no page's block is run with, whatever its marker, and why.
var never = map[string]string{
	`\bmake (-\S+ )*test\b`:                  "it would run this test again",
	`\bmake (-\S+ )*bench\b|test/bench`:      "it takes minutes",
	`\bmake (-\S+ )*verify\b`:                "make verify is run beside the tests",
	`\bmake (-\S+ )*undeploy\b`:              "it takes away what the other pages need",
	`\bmake (-\S+ )*cluster-down\b`:          "it takes away what the other pages need",
	`\bcluster run \. (kill|stop|restart)\b`: "it disturbs the node",
	`\brm -rf\b`:                             "it deletes files outside of the test",
	`\bgo test\b|-fuzz\b`:                    "the tests are run beside this one",
	`\bhelm (install|upgrade|uninstall)\b`:   "the operator is installed already; test/install does it with Helm",
	`\b(docker|crane|sudo)\b`:                "the program may not be here",
}

// elsewhere are pages whose commands another test runs.
var elsewhere = map[string]string{
	"docs/kubectl.md": "test/e2e runs this page's commands and compares what they print",
}

// always are the pages whose commands every run on a cluster tries: what a newcomer reads first. The full run tries those of all pages.
var always = []string{"README.md", "docs/tutorial.md"}

// why says why a block isn't run; empty when it is.
func (b block) why() string {
	if reason := elsewhere[b.page]; reason != "" {
		return reason
	}
	if reason, ok := strings.CutPrefix(b.marker, notRun); ok {
		return reason
	}
	for pattern, reason := range never {
		if regexp.MustCompile(pattern).MatchString(b.text) {
			return reason
		}
	}
	return ""
}

// script is what a block has to run: of a console, the commands, and around what they print marks.
func (b block) script() string {
	if b.language != "console" {
		return b.text
	}
	var commands strings.Builder
	for _, s := range b.console() {
		commands.WriteString(s.marked())
	}
	return commands.String()
}

// Every command of every page does what it says, in order, in one shell for each page. Those of consoles print what the page
// shows.
func TestCommands(t *testing.T) {
	needCluster(t)
	ran := 0
	for _, page := range pages(t) {
		found, _ := blocks(page, read(t, page))
		var script strings.Builder
		var consoles []shown
		for _, b := range found {
			if b.language != "sh" && b.language != "console" {
				continue
			}
			if reason := b.why(); reason != "" {
				t.Logf("%s:%d isn't run: %s", b.page, b.line, reason)
				continue
			}
			ran++
			if b.language == "console" {
				consoles = append(consoles, b.console()...)
			}
			fmt.Fprintf(&script, "echo 'in the block at line %d' >&2\n%s\n", b.line, b.script())
		}
		if script.Len() > 0 {
			t.Run(page, func(t *testing.T) {
				if !slices.Contains(always, page) {
					full.Only(t, "the commands of all pages take minutes")
				}
				compareShown(t, page, runPage(t, page, script.String()), consoles)
			})
		}
	}
	if ran < 3 {
		t.Errorf("%d blocks were run only", ran)
	}
}

// runPage runs a page's commands as a person does who types them in the project's folder, and gives what they printed.
func runPage(t *testing.T, page, script string) string {
	before := map[string][]string{}
	for _, kind := range left {
		before[kind] = names(t, kind)
	}
	t.Cleanup(func() {
		for _, kind := range left {
			discardNew(t, kind, before[kind])
		}
	})
	c := command{limit: 10 * time.Minute, env: []string{"TMPDIR=" + t.TempDir()}}
	if strings.Contains(script, inPages) {
		script = strings.NewReplacer(standIns(newRegistry(t))...).Replace(script)
		t.Cleanup(func() { putBack(t) })
		c.env = append(c.env, releasing(t)...)
	}
	c.args = []string{"bash", "-euo", "pipefail", "-c", script}
	out, errOut, err := c.run(t)
	if err != nil {
		t.Errorf("the commands of %s: %v\n%s\n%s", page, err, out, errOut)
	}
	return out
}

// left is what pages may make and leave there: objects of the cluster, and those in the operator's namespace.
var left = []string{
	"namespaces", "executionpolicies.toolcall.dev", "runtimeclasses", "persistentvolumes", "clusterroles", "clusterrolebindings",
	"deployments -n toolcall-system", "services -n toolcall-system", "secrets -n toolcall-system", "configmaps -n toolcall-system",
	"serviceaccounts -n toolcall-system", "roles -n toolcall-system", "rolebindings -n toolcall-system",
}

func names(t *testing.T, kind string) []string {
	t.Helper()
	args := append([]string{"get", "-o", "jsonpath={.items[*].metadata.name}"}, strings.Fields(kind)...)
	return strings.Fields(kubectl(args...).must(t))
}

// discardNew takes away what the page made and didn't take away itself.
func discardNew(t *testing.T, kind string, keep []string) {
	for _, name := range names(t, kind) {
		if !slices.Contains(keep, name) {
			args := append([]string{"delete", "--ignore-not-found", "--timeout=110s"}, strings.Fields(kind)...)
			kubectl(append(args, name)...).must(t)
		}
	}
}

// A marker has a reason, and stands above a block that would be run without it.
func TestMarkers(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		found, _ := blocks(page, read(t, page))
		for _, b := range found {
			if !strings.HasPrefix(b.marker, strings.TrimSpace(notRun)) {
				continue
			}
			if len(b.why()) < 10 || (b.language != "sh" && b.language != "console") {
				t.Errorf("%s:%d: write <!-- not run: REASON --> above a block of commands, with the reason", b.page, b.line)
			}
		}
	}
}

func TestWhatIsNeverRun(t *testing.T) {
	t.Parallel()
	for text, run := range map[string]bool{
		"make demo": true, "make test": false, "make -s test": false, "make test-full": false, "make load-tools": true, "make bench": false, "make release push": true,
		"go -C hack/cluster run . kill kubelet": false, "kubectl get tc": true, "kubectl explain toolcalls.spec.shell": true,
		"rm -rf /": false, "make undeploy": false, "make deploy": true, "make -s kubeconfig": true,
		"kubectl apply -f dist/install.yaml": true, "helm install x": false, "echo $REGISTRY": true,
	} {
		if got := (block{text: text}).why() == ""; got != run {
			t.Errorf("%q is run: %t", text, got)
		}
	}
}

// A page is left out only while the test that it is left to is there.
func TestPagesThatAreTestedElsewhere(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob(filepath.Join(root, "test/e2e/*_page_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for page := range elsewhere {
		if !slices.ContainsFunc(tests, func(path string) bool {
			raw, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(raw), `"`+filepath.Base(page)+`"`)
		}) {
			t.Errorf("no test in test/e2e reads %s", page)
		}
	}
}

// The pages that every run tries are there, and have commands.
func TestPagesThatAreAlwaysRun(t *testing.T) {
	t.Parallel()
	for _, page := range always {
		found, _ := blocks(page, read(t, page))
		if !slices.ContainsFunc(found, func(b block) bool { return b.language == "console" && b.why() == "" }) {
			t.Errorf("%s has no console whose commands are run", page)
		}
	}
}
