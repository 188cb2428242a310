package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
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
	`\bTOOLCALL_CLUSTER_AUDIT=1\b`:           "it needs a cluster of its own",
	`\bhelm (install|upgrade|uninstall)\b`:   "the operator is installed already; test/install does it with Helm",
	`\b(docker|crane|sudo)\b`:                "the program may not be here",
}

// elsewhere are pages whose commands another test runs.
var elsewhere = map[string]string{
	"docs/kubectl.md": "test/e2e runs this page's commands and compares what they print",
}

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
			t.Run(page, func(t *testing.T) { compareShown(t, page, runPage(t, page, script.String()), consoles) })
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
	c := command{limit: 5 * time.Minute, env: []string{"TMPDIR=" + t.TempDir()}}
	if strings.Contains(script, inPages) {
		script = strings.NewReplacer(standIns(newRegistry(t))...).Replace(script)
		t.Cleanup(func() { putBack(t) })
		c.env, c.limit = append(c.env, releasing(t)...), 10*time.Minute
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

// manifest is the part of an object that says what it is.
type manifest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

// Every object that a page shows would be taken by the API server. Fragments only have to be YAML.
func TestManifests(t *testing.T) {
	needCluster(t)
	for _, page := range pages(t) {
		found, _ := blocks(page, read(t, page))
		for _, b := range found {
			if b.language != "yaml" && b.language != "yml" {
				continue
			}
			for _, raw := range documents(t, b) {
				checkManifest(t, b, raw)
			}
		}
	}
}

func documents(t *testing.T, b block) []json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(b.text), 4096)
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Errorf("%s:%d isn't YAML: %v", b.page, b.line, err)
			return all
		}
		all = append(all, raw)
	}
}

// served says whether the cluster knows a group's kinds: Kubernetes' own, of which x-k8s.io isn't, or the project's.
func served(group string) bool {
	return !strings.Contains(group, ".") || group == "toolcall.dev" ||
		strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".x-k8s.io")
}

func TestServed(t *testing.T) {
	t.Parallel()
	for group, want := range map[string]bool{
		"v1": true, "apps": true, "toolcall.dev": true, "rbac.authorization.k8s.io": true, "kueue.x-k8s.io": false, "monitoring.coreos.com": false,
	} {
		if served(group) != want {
			t.Errorf("%s is served: %t", group, !want)
		}
	}
}

func checkManifest(t *testing.T, b block, raw json.RawMessage) {
	t.Helper()
	m := manifest{}
	if json.Unmarshal(raw, &m) != nil || m.APIVersion == "" || m.Kind == "" {
		return
	}
	group, _, _ := strings.Cut(m.APIVersion, "/")
	if !served(group) {
		t.Logf("%s:%d: %s of %s isn't checked: the kind isn't Kubernetes' own", b.page, b.line, m.Kind, m.APIVersion)
		return
	}
	if m.Namespace != "" && !slices.Contains(names(t, "namespaces"), m.Namespace) {
		kubectl("create", "namespace", m.Namespace).must(t)
		t.Cleanup(func() {
			kubectl("delete", "namespace", m.Namespace, "--ignore-not-found", "--timeout=110s").must(t)
		})
	}
	verb := "apply"
	if m.Name == "" {
		verb = "create"
	}
	if out, errOut, err := kubectl(verb, "--dry-run=server", "-f", "-").with(string(raw)).run(t); err != nil {
		t.Errorf("%s:%d: the API server refuses %s %s: %s%s", b.page, b.line, m.Kind, m.Name, out, errOut)
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
	for pattern := range never {
		if _, err := regexp.Compile(pattern); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsNeverRun(t *testing.T) {
	t.Parallel()
	for text, run := range map[string]bool{
		"make demo": true, "make test": false, "make -s test": false, "make load-tools": true, "make bench": false, "make release push": true,
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

// A page may not be left out because nothing in the project's folder is found.
func TestEveryPageIsFound(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(filepath.Join(root, "docs"))
	if err != nil {
		t.Fatal(err)
	}
	all := pages(t)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".md") && !slices.Contains(all, "docs/"+e.Name()) {
			t.Errorf("docs/%s isn't tested", e.Name())
		}
	}
}
