package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// found returns the locations of the candidates in a document, with their points.
func found(t *testing.T, source string) (environments, policies map[string]int) {
	t.Helper()
	values, err := parse([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	f := &finder{}
	f.walk(table{&location{}, values}, 0)
	points := func(all []candidate) map[string]int {
		m := map[string]int{}
		for _, c := range all {
			m[c.at.String()] = c.points
		}
		return m
	}
	return points(f.environments), points(f.policies)
}

func TestEnvironmentsAreRatedByTheirShape(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source string
		want   map[string]int
	}{
		"a full one":                  {"default_env = 'a'\n[[environments]]\nname = 'a'\ncwd = '/'\n", map[string]int{"environments": 8}},
		"another name":                {"[[places]]\nname = 'a'\ncwd = '/'\n", map[string]int{"places": 2}},
		"another name with a default": {"default_env = 'a'\n[[places]]\nname = 'a'\ncwd = '/'\n", map[string]int{"places": 4}},
		"another name, names alone":   {"[[places]]\nname = 'a'\n", map[string]int{}},
		"names alone":                 {"[[environments]]\nname = 'a'\n", map[string]int{"environments": 6}},
		"foreign keys":                {"[[environments]]\nname = 'a'\nimage = 'x'\n", map[string]int{"environments": 4}},
		"servers":                     {"[[servers]]\nname = 'a'\ncommand = 'x'\nenv = {A = ''}\n", map[string]int{}},
		"a table instead of an array": {"[environments]\nname = 'a'\n", map[string]int{}},
		"an array of other things":    {"environments = ['a', 'b']\n", map[string]int{}},
		"an array of mixed things":    {"environments = [{name = 'a'}, 'b']\n", map[string]int{}},
		"an empty array":              {"environments = []\n", map[string]int{}},
		"an array in an array":        {"environments = [[{name = 'a'}]]\n", map[string]int{}},
		"as deep as is searched":      {"[[" + strings.Repeat("a.", maxDepth) + "environments]]\nname = 'a'\n", map[string]int{strings.Repeat("a.", maxDepth) + "environments": 6}},
		"deeper than is searched":     {"[[" + strings.Repeat("a.", maxDepth+1) + "environments]]\nname = 'a'\n", map[string]int{}},
	} {
		if got, _ := found(t, c.source); !cmp.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestLimitsAreRatedByTheirKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source string
		want   map[string]int
	}{
		"one key":          {"[a]\nmax_timeout_secs = 1\n", map[string]int{"a": 1}},
		"all keys":         {"allow_shell_mode = 1\nallowed_commands = 1\ndefault_timeout_secs = 1\nmax_timeout_secs = 1\nenv_blocklist = 1\n", map[string]int{topLevel: 5}},
		"similar keys":     {"[a]\nmax_timeout = 1\nMAX_TIMEOUT_SECS = 1\n", map[string]int{}},
		"several tables":   {"[a]\nmax_timeout_secs = 1\n[a.b]\nallow_shell_mode = true\nenv_blocklist = []\n", map[string]int{"a": 1, "a.b": 2}},
		"tables of arrays": {"[[a]]\nmax_timeout_secs = 1\n[[a]]\nmax_timeout_secs = 1\n", map[string]int{"a[0]": 1, "a[1]": 1}},
	} {
		if _, got := found(t, c.source); !cmp.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// The better candidate wins; equal ones are an error that names them, up to a bound.
func TestChoosingBetweenCandidates(t *testing.T) {
	t.Parallel()
	make := func(names ...string) (all []candidate) {
		for _, name := range names {
			all = append(all, candidate{at: &location{text: strings.TrimRight(name, "+")}, points: strings.Count(name, "+")})
		}
		return all
	}
	many := strings.Split("a+ b+ c+ d+ e+ f+ g+ h+ i+ j+", " ")
	for name, c := range map[string]struct {
		wanted      string
		all         []candidate
		want, error string
	}{
		"none":                   {"", nil, "", ""},
		"one":                    {"", make("a+"), "a", ""},
		"a better one":           {"", make("a+", "b++", "c+"), "b", ""},
		"equal ones":             {"", make("a+", "b++", "c++"), "", "the tables: more than one candidate (b, c): select one with --key"},
		"equal ones, one wanted": {"c", make("a+", "b++", "c++"), "c", ""},
		"a worse one wanted":     {"a", make("a+", "b++"), "a", ""},
		"another one wanted":     {"x", make("a+", "b++"), "", `--key="x" doesn't match the tables; candidates: a, b`},
		"one wanted of none":     {"x", nil, "", `--key="x" doesn't match the tables; candidates: none`},
		"too many to name":       {"", make(many...), "", "(a, b, c, d, e, f, g, h): select"},
	} {
		got, err := choose("the tables", "--key", c.wanted, c.all)
		switch {
		case c.error != "":
			if err == nil || !strings.Contains(err.Error(), c.error) {
				t.Errorf("%s: got %v", name, err)
			}
		case err != nil || (got == nil) != (c.want == "") || got != nil && got.at.text != c.want:
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

// Choosing changes nothing, so that the other candidates can be named afterwards.
func TestChoosingKeepsTheCandidates(t *testing.T) {
	t.Parallel()
	all := []candidate{{at: &location{text: "a"}, points: 1}, {at: &location{text: "b"}, points: 2}, {at: &location{text: "c"}, points: 1}}
	if _, err := choose("x", "--x", "", all); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b", "c"} {
		if all[i].at.text != name {
			t.Errorf("candidate %d is %s", i, all[i].at.text)
		}
	}
}

// Everything in a document that was not converted is mentioned, once, and nothing that was.
func TestUnusedKeysAreMentioned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source      string
		want, never []string
	}{
		"a foreign table":                {"max_timeout_secs = 5\n[llm]\nmodel = 'x'\n", []string{"note: top level: not converted: llm"}, []string{"llm.model"}},
		"a key beside the environments":  {"[x]\nother = 1\n[[x.environments]]\nname = 'a'\n", []string{"not converted: x.other"}, []string{"x.environments:  "}},
		"a key among the limits":         {"[x]\nother = 1\nmax_timeout_secs = 5\n", []string{"warning: x.other: unknown key: left out"}, []string{"not converted"}},
		"a table among the limits":       {"[x]\nmax_timeout_secs = 5\n[x.y]\na = 1\nb = 2\n", []string{"warning: x.y: unknown key: left out"}, []string{"x.y.a"}},
		"a key in an environment":        {"[[environments]]\nname = 'a'\nimage = 'x'\n", []string{"warning: environments[0].image: unknown key: left out"}, []string{"not converted"}},
		"a limit in an environment":      {"[[environments]]\nname = 'a'\nmax_timeout_secs = 5\n", []string{"warning: environments[0].max_timeout_secs: unknown key: left out"}, nil},
		"other limits":                   {"max_timeout_secs = 5\nallow_shell_mode = false\n[y]\nmax_timeout_secs = 5\n", []string{"warning: y: has limits too", "only those of top level are"}, []string{"top level: not converted"}},
		"keys of the document's own":     {"max_timeout_secs = 5\nmodel = 'x'\n", []string{"not converted: model"}, []string{"warning: model"}},
		"more tables than can be listed": {"max_timeout_secs = 5\n" + numbered("[t%d]\na = 1\n", 30), []string{"t0, t1, t10", "14 more"}, []string{"t9"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := Convert([]byte(c.source), Options{Image: "i"})
			if err != nil {
				t.Fatal(outcome(result, err))
			}
			remarks := outcome(Result{Remarks: result.Remarks}, nil)
			for _, want := range c.want {
				if strings.Count(remarks, want) != 1 {
					t.Errorf("%q isn't there once:\n%s", want, remarks)
				}
			}
			for _, never := range c.never {
				if strings.Contains(remarks, never) {
					t.Errorf("%q is there:\n%s", never, remarks)
				}
			}
		})
	}
}
