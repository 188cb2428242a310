package envresolve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// readVectors reads testdata/<name>.json, refusing fields that the test doesn't know.
func readVectors[T any](t testing.TB, name string) []T {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var vectors struct {
		About string
		Cases []T
	}
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Cases) == 0 {
		t.Fatalf("testdata/%s.json holds no cases", name)
	}
	return vectors.Cases
}

type vectorLayer struct{ Env map[string]string }

type envVector struct {
	Name                  string
	Image                 map[string]string
	InheritEnv            string
	Blocklist             []string
	Default, Skill, Named *vectorLayer
	Call                  struct {
		Env                   map[string]string
		WorkingDir            string
		Named, NamedIsDefault bool
	}
	Trusted bool
	Want    struct {
		Env      map[string]struct{ Value, Source string }
		Stripped []string
		Trusted  bool
	}
}

func (v *envVector) input() Input {
	environment := func(name string, l *vectorLayer) *Environment {
		if l == nil {
			return nil
		}
		return &Environment{Name: name, Vars: literals(l.Env), InheritMinimal: v.InheritEnv == "Minimal"}
	}
	named := "named"
	if v.Call.NamedIsDefault {
		named = "default"
	}
	in := Input{
		Default:          environment("default", v.Default),
		Named:            environment(named, v.Named),
		Call:             Call{WorkingDir: v.Call.WorkingDir, Vars: literals(v.Call.Env)},
		TrustedRequested: v.Trusted,
		Blocklist:        v.Blocklist,
	}
	if v.Skill != nil {
		in.Skill = literals(v.Skill.Env)
	}
	return in
}

// literals turns a map into variables, in random order as maps are.
func literals(env map[string]string) []Var {
	var vars []Var
	for name, value := range env {
		vars = append(vars, Var{Name: name, Value: value})
	}
	return vars
}

// pairs turns a map into KEY=VALUE, in random order.
func pairs(env map[string]string) []string {
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}

func TestEnvironmentVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors[envVector](t, "environment") {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			plan := MakePlan(v.input())
			got, err := Resolve(throughJSON(t, plan), pairs(v.Image), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := Resolved{Stripped: v.Want.Stripped}
			for name, w := range v.Want.Env {
				want.Env = append(want.Env, name+"="+w.Value)
				want.Vars = append(want.Vars, ResolvedVar{Name: name, Source: Source(w.Source)})
			}
			sortByName(&want)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if plan.Trusted != v.Want.Trusted {
				t.Errorf("trusted: %t", plan.Trusted)
			}
		})
	}
}

// throughJSON passes the plan the way it takes from the controller to the runner.
func throughJSON(t testing.TB, plan Plan) *Plan {
	t.Helper()
	data, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	var back Plan
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plan, back, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("JSON changes the plan:\n%s", diff)
	}
	return &back
}

func sortByName(r *Resolved) {
	slices.SortFunc(r.Vars, func(a, b ResolvedVar) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Env, func(a, b string) int { return strings.Compare(nameOf(a), nameOf(b)) })
}

func nameOf(kv string) string {
	name, _, _ := strings.Cut(kv, "=")
	return name
}

type dirVector struct {
	Name                      string
	Call, Named, Default      string
	ImageWorkingDir           string
	AllowedPaths, Directories []string
	Symlinks                  map[string]string
	Files                     []string
	Want                      struct{ Dir, Reason string }
}

func TestWorkingDirVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors[dirVector](t, "workingdir") {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			plan := MakePlan(Input{
				Default: &Environment{WorkingDir: v.Default, AllowedPaths: v.AllowedPaths},
				Named:   &Environment{WorkingDir: v.Named, AllowedPaths: v.AllowedPaths},
				Call:    Call{WorkingDir: v.Call},
			})
			fsys := newFakeFS(v.Directories, v.Files, v.Symlinks)
			dir, err := ResolveDir(fsys, throughJSON(t, plan).DirRequest(v.ImageWorkingDir))
			if dir != v.Want.Dir || reasonOf(err) != v.Want.Reason {
				t.Errorf("got %q, %v; want %q, %s", dir, err, v.Want.Dir, v.Want.Reason)
			}
		})
	}
}
