package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// converted converts a document that has limits, and returns the policy and the remarks as text.
func convertedPolicy(t *testing.T, limits string) (*v1alpha1.ExecutionPolicySpec, string) {
	t.Helper()
	result, err := Convert([]byte("[tools]\n"+limits), Options{})
	if err != nil {
		t.Fatal(outcome(result, err))
	}
	_, policies := objects(t, result.Manifests)
	if len(policies) != 1 {
		t.Fatalf("%d policies", len(policies))
	}
	return &policies[0].Spec, outcome(Result{Remarks: result.Remarks}, nil)
}

// policyCase is a table of limits, what it becomes, and which remark says so.
type policyCase struct {
	limits string
	want   v1alpha1.ExecutionPolicySpec
	remark string
}

func checkPolicies(t *testing.T, cases map[string]policyCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, remarks := convertedPolicy(t, c.limits)
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(remarks, c.remark) {
				t.Errorf("no %q in\n%s", c.remark, remarks)
			}
		})
	}
}

func enforced(names ...string) *v1alpha1.BinariesPolicy {
	if names == nil {
		names = []string{}
	}
	return &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: names}
}

func TestShellModes(t *testing.T) {
	t.Parallel()
	on, off := ptr.To(true), ptr.To(false)
	checkPolicies(t, map[string]policyCase{
		"no shell": {"allow_shell_mode = false", v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: off}}, "RBAC"},
		"a shell":  {"allow_shell_mode = true", v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: on}}, "RBAC"},
		"a shell with listed commands": {
			"allow_shell_mode = true\nallowed_commands = ['ls']",
			v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: on, Commands: v1alpha1.ShellAllowlisted}, Binaries: enforced("ls")},
			"warning: tools.allow_shell_mode: allowed_commands applies to scripts too",
		},
		"a shell with any command": {
			"allow_shell_mode = true\nallowed_commands = []",
			v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: on}, Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesPermissive}},
			"note: tools.allow_shell_mode: scripts can run any command",
		},
		"no shell, with listed commands": {
			"allow_shell_mode = false\nallowed_commands = ['ls']",
			v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: off}, Binaries: enforced("ls")},
			"note: tools.allowed_commands: binaries.mode is Enforced",
		},
	})
}

// What can't be listed is left out with a warning, and a list of nothing else allows nothing: never everything.
func TestCommandLists(t *testing.T) {
	t.Parallel()
	cases := map[string]policyCase{
		"several names": {"allowed_commands = ['git', 'ls']", v1alpha1.ExecutionPolicySpec{Binaries: enforced("git", "ls")}, ""},
		"a path":        {"allowed_commands = ['/usr/bin/git']", v1alpha1.ExecutionPolicySpec{Binaries: enforced("git")}, `"/usr/bin/git" becomes "git"`},
		"a relative path": {
			"allowed_commands = ['bin/tool']", v1alpha1.ExecutionPolicySpec{Binaries: enforced("tool")}, `"bin/tool" becomes "tool"`,
		},
		"a name twice": {"allowed_commands = ['/bin/ls', 'ls', '/usr/bin/ls']", v1alpha1.ExecutionPolicySpec{Binaries: enforced("ls")}, ""},
		"odd names":    {"allowed_commands = ['g++', 'python3.11', '_x', 'a=b', 'É']", v1alpha1.ExecutionPolicySpec{Binaries: enforced("g++", "python3.11", "_x", "a=b", "É")}, ""},
	}
	for name, entry := range map[string]string{
		"an argument": "git status", "a tab": "a\\tb", "a newline": "a\\nb", "a NUL": "a\\u0000", "nothing": "", "a delete": "\\u007f",
		"a root": "/", "a dot": ".", "two dots": "..", "a path upwards": "../ls", "dots inside": "a/../ls", "a directory": "bin/",
		"a star": "*", "a question mark": "l?", "a class": "[ab]", "braces": "{a,b}", "a variable": "$HOME", "a backslash": "a\\\\b",
		"a pipe": "a|b", "an and": "a&b", "a semicolon": "a;b", "a redirection": "a>b", "a substitution": "$(id)", "backticks": "`id`", "quotes": "'a'",
	} {
		cases[name] = policyCase{fmt.Sprintf("allowed_commands = [\"%s\"]", entry), v1alpha1.ExecutionPolicySpec{Binaries: enforced()}, "no entry can be converted: no command is allowed"}
		cases[name+" beside a name"] = policyCase{fmt.Sprintf("allowed_commands = ['ls', \"%s\"]", entry), v1alpha1.ExecutionPolicySpec{Binaries: enforced("ls")}, "warning: tools.allowed_commands: left out"}
	}
	checkPolicies(t, cases)
}

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	limits := func(def, highest int32) v1alpha1.ExecutionPolicySpec {
		p := &v1alpha1.TimeoutsPolicy{}
		if def > 0 {
			p.DefaultSeconds = &def
		}
		if highest > 0 {
			p.MaxSeconds = &highest
		}
		return v1alpha1.ExecutionPolicySpec{Timeouts: p}
	}
	checkPolicies(t, map[string]policyCase{
		"both":                               {"default_timeout_secs = 30\nmax_timeout_secs = 60", limits(30, 60), ""},
		"both the same":                      {"default_timeout_secs = 60\nmax_timeout_secs = 60", limits(60, 60), ""},
		"a default alone":                    {"default_timeout_secs = 30", limits(30, 0), ""},
		"a default above the built-in limit": {"default_timeout_secs = 900", limits(600, 0), "900 exceeds the maximum and becomes 600"},
		"a default at the built-in limit":    {"default_timeout_secs = 600", limits(600, 0), ""},
		"a default above the limit":          {"default_timeout_secs = 90\nmax_timeout_secs = 60", limits(60, 60), "90 exceeds the maximum and becomes 60"},
		"a limit alone":                      {"max_timeout_secs = 300", limits(0, 300), ""},
		"a limit at the built-in default":    {"max_timeout_secs = 120", limits(0, 120), ""},
		"a limit below the built-in default": {"max_timeout_secs = 119", limits(119, 119), "120 exceeds the maximum and becomes 119"},
		"a limit above any":                  {"max_timeout_secs = 9999999", limits(0, 604800), "9999999 becomes 604800, the maximum"},
		"zero": {
			"default_timeout_secs = 0\nmax_timeout_secs = 60", limits(60, 60), "default_timeout_secs: left out: 0 is not a time limit",
		},
		"nothing but zero": {"max_timeout_secs = 0", v1alpha1.ExecutionPolicySpec{}, "max_timeout_secs: left out: 0 is not a time limit"},
		"less than zero":   {"max_timeout_secs = -1", v1alpha1.ExecutionPolicySpec{}, "left out: -1 is not a time limit"},
	})
}

func TestTimeLimitsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"'60'", "1.5", "nan", "inf", "-inf", "1e300", "true", "[60]", "{s = 60}", "2030-01-01"} {
		for _, key := range []string{keyDefaultTimeout, keyMaxTimeout} {
			result, err := Convert([]byte("[tools]\n"+key+" = "+value), Options{})
			if want := "error: tools." + key + ": must be a whole number of seconds"; err == nil || !strings.Contains(outcome(result, err), want) {
				t.Errorf("%s = %s: got %s", key, value, outcome(result, err))
			}
		}
	}
}

func TestBlocklists(t *testing.T) {
	t.Parallel()
	all := `env_blocklist = ["` + strings.Join(builtInBlocklist, `", "`) + `"]`
	blocks := func(prefixes ...string) v1alpha1.ExecutionPolicySpec {
		if prefixes == nil {
			prefixes = []string{}
		}
		return v1alpha1.ExecutionPolicySpec{EnvBlocklist: prefixes}
	}
	checkPolicies(t, map[string]policyCase{
		"the built-in list":           {all, blocks(builtInBlocklist...), "RBAC"},
		"prefixes":                    {"env_blocklist = ['A', 'B_']", blocks("A", "B_"), "no longer blocked: TOOLCALL_"},
		"a prefix of built-in ones":   {"env_blocklist = ['A', 'G', 'H', 'T', 'K', 'O']", blocks("A", "G", "H", "T", "K", "O"), "RBAC"},
		"patterns":                    {"env_blocklist = ['CORP_*', 'X*']", blocks("CORP_", "X"), ""},
		"a prefix twice":              {"env_blocklist = ['A', 'A*']", blocks("A"), ""},
		"none":                        {"env_blocklist = []", blocks(), "no longer blocked"},
		"a suffix":                    {"env_blocklist = ['A', '*_KEY']", blocks("A"), `env_blocklist: left out: "*_KEY" is not the start of a variable name`},
		"nothing that can be blocked": {"env_blocklist = ['*', '']", v1alpha1.ExecutionPolicySpec{}, "no entry can be converted: the built-in list applies"},
		"a digit first":               {"env_blocklist = ['A', '1A']", blocks("A"), "is not the start of a variable name"},
	})
}

// A blocklist that can't be converted never unblocks anything.
func TestTheBuiltInBlocklistIsTheOperators(t *testing.T) {
	t.Parallel()
	result, err := Convert([]byte("[t]\nenv_blocklist = ['*']\n[[environments]]\nname = 'a'\n[environments.env]\nAWS_X = ''\nPLAIN = ''\n"), Options{Image: "i"})
	if err != nil {
		t.Fatal(err)
	}
	if got := outcome(result, nil); !strings.Contains(got, `env.AWS_X: starts with "AWS_", which the policy blocks`) || strings.Contains(got, "env.PLAIN") {
		t.Errorf("got %s", got)
	}
}

func TestListsOfOtherThings(t *testing.T) {
	t.Parallel()
	for _, key := range []string{keyCommands, keyBlocklist} {
		for _, value := range []string{"'ls'", "1", "true", "[1]", "['ls', true]", "[['ls']]", "{a = 'ls'}"} {
			result, err := Convert([]byte("[tools]\n"+key+" = "+value), Options{})
			if want := "error: tools." + key + ": must be an array of strings"; err == nil || !strings.Contains(outcome(result, err), want) {
				t.Errorf("%s = %s: got %s", key, value, outcome(result, err))
			}
		}
	}
}

func TestThePolicysName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source, option, policy, reference string
	}{
		"by default":                      {"[t]\nmax_timeout_secs = 1\n[[environments]]\nname = 'a'\n", "", "converted", "converted"},
		"as the user says":                {"[t]\nmax_timeout_secs = 1\n[[environments]]\nname = 'a'\n", "mine", "mine", "mine"},
		"of one that exists":              {"[[environments]]\nname = 'a'\n", "mine", "", "mine"},
		"none, for the cluster's default": {"[[environments]]\nname = 'a'\n", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := Convert([]byte(c.source), Options{Image: "i", PolicyName: c.option})
			if err != nil {
				t.Fatal(outcome(result, err))
			}
			envs, policies := objects(t, result.Manifests)
			policy := ""
			if len(policies) > 0 {
				policy = policies[0].Name
			}
			if policy != c.policy || envs[0].Spec.PolicyName() != c.reference {
				t.Errorf("policy %q, reference %q", policy, envs[0].Spec.PolicyName())
			}
		})
	}
}
