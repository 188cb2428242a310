package convert

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files")

// outcome is the result of a conversion as text.
func outcome(result Result, err error) string {
	var b strings.Builder
	for _, remark := range result.Remarks {
		fmt.Fprintf(&b, "# %s\n", remark)
	}
	if err != nil {
		fmt.Fprintf(&b, "# failed: %s\n", err)
	}
	return b.String() + string(result.Manifests)
}

func TestGolden(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("testdata/*.toml")
	if err != nil || len(sources) == 0 {
		t.Fatal("no cases", err)
	}
	for _, source := range sources {
		t.Run(filepath.Base(source), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			got := outcome(Convert(data, Options{Namespace: "agents", Image: "registry.example/tools:1"}))
			golden := strings.TrimSuffix(source, ".toml") + ".golden.yaml"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// objects decodes manifests strictly, as a client does.
func objects(t *testing.T, manifests []byte) (envs []v1alpha1.ExecutionEnvironment, policies []v1alpha1.ExecutionPolicy) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+string(manifests), "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		var environment v1alpha1.ExecutionEnvironment
		var policy v1alpha1.ExecutionPolicy
		var err error
		switch kind.Kind {
		case "ExecutionEnvironment":
			err = yaml.UnmarshalStrict([]byte(document), &environment)
			envs = append(envs, environment)
		case "ExecutionPolicy":
			err = yaml.UnmarshalStrict([]byte(document), &policy)
			policies = append(policies, policy)
		default:
			t.Fatalf("a document of kind %q", kind.Kind)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return envs, policies
}

func TestTablesAreFoundByShape(t *testing.T) {
	t.Parallel()
	const limits, env = "max_timeout_secs = 5\n", "name = 'a'\ncwd = '/tmp'\n"
	cases := []struct {
		name, source string
		envs         int
		policies     int
		remark       string
	}{
		{"environments at the top", "[[environments]]\n" + env, 1, 0, "note: environments: converted"},
		{"in the singular", "[[environment]]\n" + env, 1, 0, "note: environment: converted"},
		{"within a table", "[[execution.environments]]\n" + env, 1, 0, "note: execution.environments: converted"},
		{"under another name", "[[places]]\n" + env, 1, 0, "note: places: converted"},
		{"inline", "environments = [{name = 'a'}, {name = 'b'}]\n", 2, 0, "note: environments: converted"},
		{"within an array of tables", "[[agents]]\nmodel = 1\n[[agents.environments]]\n" + env, 1, 0, "agents[0].environments: converted"},
		{"limits at the top", limits, 0, 1, "note: top level: these limits become"},
		{"limits in any table", "[a.'b c'.exec]\n" + limits, 0, 1, `note: a."b c".exec: these limits become`},
		{"limits around environments", "[execution]\n" + limits + "[[execution.environments]]\n" + env, 1, 1, "note: execution: these limits become"},
		{"a list of servers isn't taken", "[[servers]]\nname='a'\ncommand='x'\nenv={A='1'}\n[tools]\n" + limits, 0, 1, "note: tools: these limits become"},
		{"servers beside environments", "[[servers]]\nname='a'\ncommand='x'\nenv={A='1'}\n[[environments]]\n" + env, 1, 0, "note: environments: converted to ExecutionEnvironments: 1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			result, err := Convert([]byte(c.source), Options{Image: "i"})
			if err != nil {
				t.Fatal(outcome(result, err))
			}
			envs, policies := objects(t, result.Manifests)
			if len(envs) != c.envs || len(policies) != c.policies || !strings.Contains(outcome(result, nil), c.remark) {
				t.Errorf("got %s", outcome(result, nil))
			}
		})
	}
}

func TestDocumentsThatCantBeConverted(t *testing.T) {
	t.Parallel()
	const env = "[[environments]]\nname = 'a'\n"
	long := strings.Repeat("x", 1000)
	cases := []struct {
		name, source string
		options      Options
		want         string
	}{
		{"bad syntax is placed", "a = 1\nb = = 2\n", Options{}, "line 2, column 5: "},
		{"so is a key that is set twice", "a = 1\na = 2\n", Options{}, "line 2, column 1: "},
		{"so is invalid UTF-8", "a = 1\nb = '\xff'\n", Options{}, "line 2, column"},
		{"nothing to convert", "a = 1\n", Options{}, "found neither a table array of environments"},
		{"an empty document", "", Options{}, "found neither"},
		{"no image", env, Options{}, "error: environments: an environment needs an image: set it with --image"},
		{"a default that doesn't exist", "default_env = 'b'\n" + env, Options{Image: "i"}, `default_env names "b", which is not one of the environments`},
		{"a default without environments", "default_env = 'b'\n[t]\nmax_timeout_secs = 1\n", Options{}, `error: default_env: names "b", but there are no environments`},
		{"a default that is no string", "default_env = 1\n" + env, Options{Image: "i"}, "default_env: must be a string"},
		{"two defaults", "[x]\ndefault_env = 'a'\n[y]\ndefault_env = 'a'\n" + env, Options{Image: "i"}, "x.default_env: is set in y too: keep one of them"},
		{"a name twice", env + env, Options{Image: "i"}, `environments[1].name: "a" can't be made a Kubernetes name of its own: rename it`},
		{"no name", env + "[[environments]]\n", Options{Image: "i"}, "environments[1].name: an environment needs a name"},
		{"two lists of environments", "[[a_env]]\nname='a'\n[[b_env]]\nname='b'\n", Options{Image: "i"}, "the environments: more than one candidate (a_env, b_env): select one with --environments-key"},
		{"two tables of limits", "[a]\nmax_timeout_secs=1\n[b]\nmax_timeout_secs=1\n", Options{}, "the limits: more than one candidate (a, b): select one with --policy-key"},
		{"a key that isn't there", env, Options{Image: "i", EnvironmentsKey: "x"}, "error: x: --environments-key doesn't name the environments; candidates: environments"},
		{"too long a document", strings.Repeat("#"+long+"\n", 1100), Options{}, "longer than 524288 bytes"},
		{"too deep a document", "a = " + strings.Repeat("[", 500_000), Options{}, "nested"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			result, err := Convert([]byte(c.source), c.options)
			if err == nil || !strings.Contains(outcome(result, err), c.want) {
				t.Errorf("got %s", outcome(result, err))
			}
			if result.Manifests != nil {
				t.Errorf("manifests came along: %s", result.Manifests)
			}
		})
	}
}

func TestAmbiguityIsResolvedByKeys(t *testing.T) {
	t.Parallel()
	const source = "[[a_env]]\nname='a'\n[[b_env]]\nname='b'\n[x]\nmax_timeout_secs=1\n[y]\nmax_timeout_secs=2\n"
	result, err := Convert([]byte(source), Options{Image: "i", EnvironmentsKey: "b_env", PolicyKey: "y"})
	if err != nil {
		t.Fatal(outcome(result, err))
	}
	envs, policies := objects(t, result.Manifests)
	if envs[0].Name != "b" || *policies[0].Spec.Timeouts.MaxSeconds != 2 {
		t.Errorf("got %s", result.Manifests)
	}
}

// A key names a table as the messages do: also the document itself, and a key that has to be quoted.
func TestKeysThatAreNotBareSelect(t *testing.T) {
	t.Parallel()
	const source = "max_timeout_secs=1\n['my limits']\nmax_timeout_secs=2\n[a.'b c']\nmax_timeout_secs=3\n"
	for key, want := range map[string]int32{"top level": 1, "my limits": 2, `"my limits"`: 2, `a."b c"`: 3} {
		result, err := Convert([]byte(source), Options{PolicyKey: key})
		if err != nil {
			t.Errorf("%s: %s", key, outcome(result, err))
			continue
		}
		if _, policies := objects(t, result.Manifests); *policies[0].Spec.Timeouts.MaxSeconds != want {
			t.Errorf("%s: got %s", key, result.Manifests)
		}
	}
}

func TestHostileTextsStayTexts(t *testing.T) {
	t.Parallel()
	hostile := []string{
		"true", "null", "~", "1e3", "0x10", "- a", "a: b", "# x", "---", "...", "\n---\nkind: ClusterRole\n", "\ttab",
		"'quotes\"", "%TAG", "@at", "`tick", "&anchor", "*alias", "!!binary x", "{a: b}", "a\u2028b\u0085c\x7f\ufeff", " lead", "trail ", "", "=", "<<",
	}
	for _, text := range hostile {
		source := fmt.Sprintf("[[environments]]\nname = 'a'\nenv.X = %s\n", tomlString(text))
		result, err := Convert([]byte(source), Options{Image: "i"})
		if err != nil {
			t.Errorf("%q: %s", text, outcome(result, err))
			continue
		}
		var back v1alpha1.ExecutionEnvironment
		if err := yaml.UnmarshalStrict(result.Manifests, &back); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := back.Spec.Env[0].Value; got != text {
			t.Errorf("%q came back as %q", text, got)
		}
		if strings.Contains("\n"+string(result.Manifests), "\n---") {
			t.Errorf("%q starts a second document", text)
		}
	}
}

func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		fmt.Fprintf(&b, `\U%08X`, r)
	}
	return b.String() + `"`
}

func TestRemarksAreSafeToPrintAndHaveNoValues(t *testing.T) {
	t.Parallel()
	source := "[tools]\nallowed_commands = [\"\\u001b[31m x\"]\n\"\\u001b]0;t\\u0007\" = 1\n" +
		"[[environments]]\nname = \"\\u001b[2J\"\ncwd = \"/x\\u001b[1m\"\n" +
		"env = { \"\\u001bX\" = 'hunter2', API_TOKEN = 'hunter2', 'A B' = 'hunter2', N = \"hunter2\\u0000\", PIN_KEY = 19283746, L = ['hunter2'] }\n"
	result, err := Convert([]byte(source), Options{Image: "i"})
	if err != nil {
		t.Fatal(outcome(result, err))
	}
	for _, remark := range result.Remarks {
		text := remark
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("control characters in %q", text)
		}
		if strings.Contains(text, "hunter2") || strings.Contains(text, "19283746") {
			t.Errorf("a value in %q", text)
		}
	}
}

func FuzzConvert(f *testing.F) {
	sources, _ := filepath.Glob("testdata/*.toml")
	for _, source := range sources {
		data, err := os.ReadFile(source)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		options := Options{Image: "i", Namespace: "n"}
		result, err := Convert(source, options)
		again, _ := Convert(source, options)
		if diff := cmp.Diff(result, again); diff != "" {
			t.Errorf("not the same twice:\n%s", diff)
		}
		if err != nil {
			if result.Manifests != nil {
				t.Error("manifests in spite of an error")
			}
			return
		}
		envs, policies := objects(t, result.Manifests)
		names := map[string]bool{}
		for _, e := range envs {
			if len(validation.IsDNS1123Label(e.Name)) > 0 || names[e.Name] || e.Spec.Image != "i" {
				t.Errorf("environment %q", e.Name)
			}
			names[e.Name] = true
		}
		for _, p := range policies {
			if limits := p.Spec.Timeouts; limits != nil && !validTimeouts(limits) {
				t.Errorf("timeouts %v", limits)
			}
		}
	})
}

// validTimeouts is the rule of the API.
func validTimeouts(limits *v1alpha1.TimeoutsPolicy) bool {
	def, highest := int32(120), int32(600)
	if limits.DefaultSeconds != nil {
		def = *limits.DefaultSeconds
	}
	if limits.MaxSeconds != nil {
		highest = *limits.MaxSeconds
	}
	return def >= 1 && def <= highest && highest <= 604800
}

// Documents near the size limit, in shapes that could cost more than their size, give bounded output.
func TestHugeDocuments(t *testing.T) {
	t.Parallel()
	const size = 500_000
	fill := func(part string) string { return strings.Repeat(part, size/len(part)) }
	sources := map[string]string{
		"many environments":    fill("[[environments]]\nname='a'\n"),
		"many lists":           numbered("[[env%d]]\nname='a'\n", 4_000),
		"many tables":          numbered("[t%d]\nmax_timeout_secs=1\n", 4_000),
		"many variables":       "[[environments]]\nname='a'\n[environments.env]\n" + numbered("A%d=''\n", 4_000),
		"many commands":        "[t]\nallowed_commands=[" + numbered("'a%d',", 4_000) + "]\n",
		"many prefixes":        "[t]\nenv_blocklist=[" + numbered("'A%d',", 4_000) + "]\n",
		"one long name":        "[[environments]]\nname='" + fill("x") + "'\n",
		"one deep key":         fill("a.")[:size/2] + "b=1\n",
		"one deep table":       "[" + fill("a.")[:size/2] + "b]\nmax_timeout_secs=1\n",
		"environments in them": fill("[[environments]]\n[[environments.environments]]\n"),
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := Convert([]byte(source), Options{Image: "i"})
			if text := outcome(result, err); len(text) > 4*size {
				t.Errorf("%d bytes came out", len(text))
			}
		})
	}
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
