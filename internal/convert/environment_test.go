package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
)

// convertedEnvironment converts a document with one environment, and returns it and the remarks as text.
func convertedEnvironment(t *testing.T, source string) (*v1alpha1.ExecutionEnvironment, string) {
	t.Helper()
	result, err := Convert([]byte(source), Options{Image: "i"})
	if err != nil {
		t.Fatal(outcome(result, err))
	}
	envs, _ := objects(t, result.Manifests)
	if len(envs) != 1 {
		t.Fatalf("%d environments", len(envs))
	}
	return &envs[0], outcome(Result{Remarks: result.Remarks}, nil)
}

func TestWorkingDirectories(t *testing.T) {
	t.Parallel()
	others := func(dir string) []string { return []string{"/workspace", "/tmp", dir} }
	for name, c := range map[string]struct {
		cwd, want string
		allowed   []string
		remark    string
	}{
		"one that is allowed anyway":        {"/workspace", "/workspace", nil, ""},
		"one inside of it":                  {"/workspace/a/b", "/workspace/a/b", nil, ""},
		"one that only looks inside of it":  {"/workspace2", "/workspace2", others("/workspace2"), "allowedPaths lists it"},
		"one that leads out of it":          {"/workspace/../etc", "/workspace/../etc", others("/etc"), "allowedPaths lists it"},
		"one that leads back into it":       {"/x/../tmp", "/x/../tmp", nil, ""},
		"another one":                       {"/srv/build/", "/srv/build/", others("/srv/build"), "must exist in the image or be mounted"},
		"the root":                          {"/", "/", others("/"), "allowedPaths lists it"},
		"a relative one":                    {"src", "src", nil, `"src" is relative to the working directory of the image`},
		"a relative one that leads upwards": {"../x", "../x", nil, "is relative"},
		"none":                              {"", "", nil, ""},
		"a home directory":                  {"~/project", "", nil, "left out: a working directory is not expanded"},
		"another user's home directory":     {"~root", "", nil, "left out: a working directory is not expanded"},
		"a variable":                        {"/home/$USER", "", nil, "left out: a working directory is not expanded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, remarks := convertedEnvironment(t, fmt.Sprintf("[[environments]]\nname = 'a'\ncwd = '%s'\n", c.cwd))
			if env.Spec.WorkingDir != c.want || !cmp.Equal(env.Spec.AllowedPaths, c.allowed) || !strings.Contains(remarks, c.remark) {
				t.Errorf("got %q, %q\n%s", env.Spec.WorkingDir, env.Spec.AllowedPaths, remarks)
			}
			if c.remark == "" && strings.Contains(remarks, "cwd") {
				t.Errorf("a remark on what doesn't change:\n%s", remarks)
			}
		})
	}
}

func TestWorkingDirectoriesThatAreNone(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"1": "must be a string", "['/tmp']": "must be a string",
	} {
		result, err := Convert([]byte("[[environments]]\nname = 'a'\ncwd = "+value+"\n"), Options{Image: "i"})
		if err == nil || !strings.Contains(outcome(result, err), "error: environments[0].cwd: "+want) {
			t.Errorf("%.40s: got %s", value, outcome(result, err))
		}
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env    string
		want   []v1alpha1.EnvVar
		remark string
	}{
		"in order":                    {"B = '2'\nA = '1'", []v1alpha1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}, ""},
		"an empty value":              {"A = ''", []v1alpha1.EnvVar{{Name: "A"}}, ""},
		"several lines":               {"A = '''\na\n---\nb'''", []v1alpha1.EnvVar{{Name: "A", Value: "a\n---\nb"}}, ""},
		"a number":                    {"A = 8080", []v1alpha1.EnvVar{{Name: "A", Value: "8080"}}, "env.A: not a string: converted to one"},
		"a number of another base":    {"A = 0x1F", []v1alpha1.EnvVar{{Name: "A", Value: "31"}}, "env.A: not a string: converted to one"},
		"a truth":                     {"A = true", []v1alpha1.EnvVar{{Name: "A", Value: "true"}}, "env.A: not a string: converted to one"},
		"a fraction":                  {"A = 1.5\nB = ''", []v1alpha1.EnvVar{{Name: "B"}}, "env.A: left out: the value of a variable must be a string"},
		"a date":                      {"A = 2030-01-01\nB = ''", []v1alpha1.EnvVar{{Name: "B"}}, "env.A: left out"},
		"a list":                      {"A = ['x']\nB = ''", []v1alpha1.EnvVar{{Name: "B"}}, "env.A: left out"},
		"a table":                     {"A = {x = 'y'}\nB = ''", []v1alpha1.EnvVar{{Name: "B"}}, "env.A: left out"},
		"the longest value":           {"A = '" + strings.Repeat("x", 100_000) + "'", []v1alpha1.EnvVar{{Name: "A", Value: strings.Repeat("x", 100_000)}}, ""},
		"a NUL":                       {`A = "x\u0000"` + "\nB = ''", []v1alpha1.EnvVar{{Name: "B"}}, "env.A: left out: its value contains a NUL byte"},
		"a digit first":               {"1A = ''\nB = ''", []v1alpha1.EnvVar{{Name: "B"}}, "env.1A: left out: a variable name"},
		"a dash":                      {"A-B = ''\nB = ''", []v1alpha1.EnvVar{{Name: "B"}}, "env.A-B: left out: a variable name"},
		"no name":                     {"'' = 'x'\nB = ''", []v1alpha1.EnvVar{{Name: "B"}}, `env."": left out: a variable name`},
		"a secret by its name":        {"MY_PASSWD = 'x'", []v1alpha1.EnvVar{{Name: "MY_PASSWD", Value: "x"}}, "env.MY_PASSWD: looks like a secret"},
		"a secret without a value":    {"API_KEY = ''", []v1alpha1.EnvVar{{Name: "API_KEY"}}, ""},
		"one that the default blocks": {"AWS_REGION = 'eu'", []v1alpha1.EnvVar{{Name: "AWS_REGION", Value: "eu"}}, `env.AWS_REGION: starts with "AWS_"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, remarks := convertedEnvironment(t, "[[environments]]\nname = 'a'\n[environments.env]\n"+c.env+"\n")
			if diff := cmp.Diff(c.want, env.Spec.Env); diff != "" {
				t.Errorf("(-want +got):\n%.2000s", diff)
			}
			if !strings.Contains(remarks, c.remark) || c.remark == "" && strings.Contains(remarks, "env.") {
				t.Errorf("no %q in\n%.2000s", c.remark, remarks)
			}
		})
	}
}

// Which environment is the default depends on where default_env is, and is an error when that isn't clear.
func TestTheDefaultEnvironment(t *testing.T) {
	t.Parallel()
	const envs = "[[x.environments]]\nname = 'a'\n[[x.environments]]\nname = 'b'\n"
	for name, c := range map[string]struct {
		source, want, remark string
	}{
		"none":                     {envs, "", "note: x.environments: there is no default_env: a call that names no environment fails"},
		"at the top":               {"default_env = 'b'\n" + envs, "b", ""},
		"next to the environments": {"[x]\ndefault_env = 'b'\n" + envs, "b", ""},
		"in an environment":        {"[[x.environments]]\nname = 'a'\ndefault_env = 'b'\n[[x.environments]]\nname = 'b'\n", "", "warning: x.environments[0].default_env: unknown key: left out"},
		"as a variable":            {"[[x.environments]]\nname = 'a'\nenv = {default_env = 'b'}\n[[x.environments]]\nname = 'b'\n", "", "there is no default_env"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := Convert([]byte(c.source), Options{Image: "i"})
			if err != nil {
				t.Fatal(outcome(result, err))
			}
			made, _ := objects(t, result.Manifests)
			got := ""
			for _, env := range made {
				if env.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true" {
					got += env.Name
				}
			}
			if got != c.want || !strings.Contains(outcome(result, nil), c.remark) {
				t.Errorf("the default is %q\n%s", got, outcome(result, nil))
			}
		})
	}
}

// Without environments nobody needs an image.
func TestLimitsAloneNeedNoImage(t *testing.T) {
	t.Parallel()
	if result, err := Convert([]byte("max_timeout_secs = 5"), Options{Image: "not an image"}); err != nil {
		t.Error(outcome(result, err))
	}
}

// A name that Kubernetes doesn't allow becomes a similar one, and an error where that can't be, or is another one's.
func TestNames(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]string{
		"'dev'": "dev", "'My Env'": "my-env", "'--x--'": "x", "'1'": "1", "'Dev'": "dev",
		"'dev', 'Dev'": "", "'my env', 'my_env'": "", "'ÄÖ'": "", "'-'": "", "'" + strings.Repeat("a", 64) + "'": "",
	} {
		source := "environments = ["
		for _, name := range strings.Split(names, ", ") {
			source += "{name = " + name + "}, "
		}
		result, err := Convert([]byte(source+"]"), Options{Image: "i"})
		if want == "" {
			if err == nil || !strings.Contains(outcome(result, err), "can't be made a Kubernetes name of its own: rename it") {
				t.Errorf("%s: %s", names, outcome(result, err))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %s", names, outcome(result, err))
			continue
		}
		if envs, _ := objects(t, result.Manifests); envs[0].Name != want {
			t.Errorf("%s became %q", names, envs[0].Name)
		}
	}
}
