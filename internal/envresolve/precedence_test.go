package envresolve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bySource says how each source sets the variable X, "" when it doesn't: "literal" or "reference".
type bySource map[Source]string

// specificFirst is the table of the specification.
var specificFirst = []Source{SourceCall, SourceEnvironment, SourceSkill, SourceDefault, SourceImage}

func (b bySource) vars(source Source) []Var {
	switch b[source] {
	case "literal":
		return []Var{{Name: "X", Value: "from " + string(source)}}
	case "reference":
		return []Var{{Name: "X", Ref: "REF_" + string(source)}}
	default:
		return nil
	}
}

// resolve runs both halves; every reference has a value.
func (b bySource) resolve(t *testing.T) Resolved {
	t.Helper()
	image := []string{"PATH=/bin"}
	for _, source := range specificFirst {
		image = append(image, fmt.Sprintf("REF_%s=from %s", source, source))
	}
	if b[SourceImage] != "" {
		image = append(image, "X=from Image")
	}
	plan := MakePlan(Input{
		Default: &Environment{Name: "d", Vars: b.vars(SourceDefault)},
		Named:   &Environment{Name: "n", Vars: b.vars(SourceEnvironment)},
		Skill:   b.vars(SourceSkill),
		Call:    Call{Vars: b.vars(SourceCall)},
	})
	got, err := Resolve(&plan, image, func(name string) bool { return len(name) > 4 && name[:4] == "REF_" })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTheMoreSpecificOfEveryTwoSourcesCounts(t *testing.T) {
	t.Parallel()
	for i, over := range specificFirst {
		for _, under := range specificFirst[i+1:] {
			for _, forms := range [][2]string{
				{"literal", "literal"}, {"literal", "reference"}, {"reference", "literal"}, {"reference", "reference"},
			} {
				if (over == SourceCall && forms[0] == "reference") || (under == SourceImage && forms[1] == "reference") {
					continue // Neither exists.
				}
				t.Run(fmt.Sprintf("%s by %s over %s by %s", over, forms[0], under, forms[1]), func(t *testing.T) {
					t.Parallel()
					got := bySource{over: forms[0], under: forms[1]}.resolve(t)
					if !slices.Contains(got.Env, "X=from "+string(over)) {
						t.Errorf("got %q", got.Env)
					}
					if !slices.Contains(got.Vars, ResolvedVar{Name: "X", Source: over}) {
						t.Errorf("got %v", got.Vars)
					}
				})
			}
		}
	}
}

func TestEverySourceIsDecidedByAllThatAreMoreSpecific(t *testing.T) {
	t.Parallel()
	for mask := 1; mask < 1<<len(specificFirst); mask++ {
		set := bySource{}
		var want Source
		for i, source := range specificFirst {
			if mask&(1<<i) == 0 {
				continue
			}
			set[source] = "literal"
			if want == "" {
				want = source
			}
		}
		if got := set.resolve(t); !slices.Contains(got.Env, "X=from "+string(want)) {
			t.Errorf("set by %v: got %q", set, got.Env)
		}
	}
}

func TestWorkingDirPrecedence(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, call, named, def, want string }{
		{"the call's counts over all", "/c", "/n", "/d", "/c"},
		{"the named environment's counts over the default's", "", "/n", "/d", "/n"},
		{"a named environment without one leaves the default's", "", "", "/d", "/d"},
		{"none leaves the image's", "", "", "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			plan := MakePlan(Input{
				Default: &Environment{WorkingDir: c.def},
				Named:   &Environment{WorkingDir: c.named},
				Call:    Call{WorkingDir: c.call},
			})
			if plan.WorkingDir != c.want {
				t.Errorf("got %q, want %q", plan.WorkingDir, c.want)
			}
		})
	}
}

func TestTheEnvironmentInEffectGivesTheSettings(t *testing.T) {
	t.Parallel()
	def := &Environment{Name: "d", InheritMinimal: true, AllowedPaths: []string{"/d"}}
	named := &Environment{Name: "n", AllowedPaths: []string{"/n"}}
	if p := MakePlan(Input{Default: def, Named: named}); p.InheritMinimal || p.AllowedPaths[0] != "/n" {
		t.Errorf("with both: %+v", p)
	}
	if p := MakePlan(Input{Default: def}); !p.InheritMinimal || p.AllowedPaths[0] != "/d" {
		t.Errorf("with the default alone: %+v", p)
	}
	if p := MakePlan(Input{}); p.Trusted {
		t.Errorf("with none: %+v", p)
	}
}

func TestTrust(t *testing.T) {
	t.Parallel()
	env := &Environment{Name: "e"}
	one := []Var{{Name: "A"}}
	cases := []struct {
		name string
		in   Input
		want bool
	}{
		{"no environment in effect is never trusted", Input{}, false},
		{"no environment in effect isn't trusted on request either", Input{TrustedRequested: true}, false},
		{"the default environment alone is trusted", Input{Default: env}, true},
		{"a skill is no context of the call", Input{Default: env, Skill: one}, true},
		{"a working directory is", Input{Default: env, Call: Call{WorkingDir: "."}}, false},
		{"a variable is", Input{Default: env, Call: Call{Vars: one}}, false},
		{"an environment's name is", Input{Named: env}, false},
		{"naming the default environment is too", Input{Default: env, Named: env}, false},
		{"an admitted request makes up for it", Input{Named: env, Call: Call{WorkingDir: "/", Vars: one}, TrustedRequested: true}, true},
		{"an empty list of variables is no context", Input{Default: env, Call: Call{Vars: []Var{}}}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := MakePlan(c.in).Trusted; got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestANamedDefaultCountsOnce(t *testing.T) {
	t.Parallel()
	env := func() *Environment { return &Environment{Name: "e", Vars: []Var{{Name: "A", Value: "e"}}} }
	skill := []Var{{Name: "A", Value: "skill"}}
	plan := MakePlan(Input{Default: env(), Named: env(), Skill: skill})
	want := []Layer{{Source: SourceSkill, Vars: skill}, {Source: SourceEnvironment, Vars: env().Vars}}
	if diff := cmp.Diff(want, plan.Layers); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	in, image := benchInput()
	random := rand.New(rand.NewPCG(1, 2))
	shuffle := func(vars []Var) { random.Shuffle(len(vars), func(i, j int) { vars[i], vars[j] = vars[j], vars[i] }) }
	plan := MakePlan(in)
	want, err := Resolve(&plan, image, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		for _, vars := range layersOf(in) {
			shuffle(vars)
		}
		random.Shuffle(len(image), func(i, j int) { image[i], image[j] = image[j], image[i] })
		shuffled := MakePlan(in)
		if diff := cmp.Diff(plan, shuffled); diff != "" {
			t.Fatalf("the plan depends on the order:\n%s", diff)
		}
		got, err := Resolve(&shuffled, image, nil)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("the result depends on the order: %v\n%s", err, diff)
		}
	}
}

func TestInputsAreOnlyRead(t *testing.T) {
	t.Parallel()
	vars := []Var{{Name: "B"}, {Name: "A"}}
	image := []string{"Z=1", "Y=2"}
	plan := MakePlan(Input{Default: &Environment{Vars: vars}, Blocklist: []string{"Q"}})
	if _, err := Resolve(&plan, image, nil); err != nil {
		t.Fatal(err)
	}
	if vars[0].Name != "B" || image[0] != "Z=1" {
		t.Errorf("changed: %v, %v", vars, image)
	}
}
