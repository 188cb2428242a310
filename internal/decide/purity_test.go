package decide_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// The package imports no client, and nothing that runs, waits or connects.
func TestThePackageStaysPure(t *testing.T) {
	t.Parallel()
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	pure := []string{
		"cmp", "encoding/json", "errors", "fmt", "maps", "slices", "strconv", "strings", "time",
		"k8s.io/api/authorization/v1", "k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/utils/ptr",
		"sigs.k8s.io/json",
		"toolcall.dev/operator/api/v1alpha1", "toolcall.dev/operator/internal/bounds", "toolcall.dev/operator/internal/celrules", "toolcall.dev/operator/internal/dispatch/wire",
		"toolcall.dev/operator/internal/envresolve", "toolcall.dev/operator/internal/guards", "toolcall.dev/operator/internal/network",
		"toolcall.dev/operator/internal/runner/sandbox/rules", "toolcall.dev/operator/internal/spec",
	}
	for _, name := range pkg.Imports {
		if !slices.Contains(pure, name) {
			t.Errorf("import of %s: deciding is pure, and only the API's types and the pure packages may be used", name)
		}
	}
}

// Of package time the types are used; what the package needs to know of the time is in the snapshot.
func TestThePackageReadsNoClock(t *testing.T) {
	t.Parallel()
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := s.X.(*ast.Ident)
			if ok && of.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "Sleep", "Tick", "NewTimer", "AfterFunc"}, s.Sel.Name) {
				t.Errorf("%s: time.%s", name, s.Sel.Name)
			}
			return true
		})
	}
}

// everySnapshot are the cases of this package: decisions, refusals and open questions.
func everySnapshot() map[string][]change {
	all := map[string][]change{
		"a call that may run": nil,
		"a call with all layers": both(func(s *decide.Snapshot) {
			s.Named.Spec.Env = []v1alpha1.EnvVar{secret("B", "b"), value("A", "a"), secret("AWS_C", "c")}
			s.Named.Spec.AllowedPaths, s.Named.Spec.Shell = []string{"/a", "/b"}, []string{"bash", "-ec"}
			s.Defaults = []v1alpha1.ExecutionEnvironment{environment("default", secret("D", "d"), value("A", "x"))}
			s.Skill = &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{value("S", "s")}}}
			s.Call.Spec.Env = []v1alpha1.CallEnvVar{{Name: "Z", Value: "z"}, {Name: "C", Value: "c"}}
		}),
	}
	all["a call in a session"] = append(both(all["a call with all layers"]...), inSession(func(s *decide.Snapshot) {
		s.Session.Origin.Refs = []corev1.EnvVar{{Name: "x"}}
		s.Session.Origin.Env = []v1alpha1.CallEnvVar{{Name: "W", Value: "w"}, {Name: "B"}, {Name: "D"}}
		s.Session.Current = s.Session.Origin.Named.DeepCopy()
	}))
	for _, cases := range []map[string]refusalCase{contextRefusals(), guardRefusals(), sessionRefusals()} {
		for name, c := range cases {
			all[name] = c.change
		}
	}
	return all
}

func deepCopy(s *decide.Snapshot) *decide.Snapshot {
	c := *s
	c.Call = s.Call.DeepCopy()
	c.Session.Object, c.Session.Current = s.Session.Object.DeepCopy(), s.Session.Current.DeepCopy()
	if origin := s.Session.Origin; origin != nil {
		inner := deepCopy(&decide.Snapshot{Context: origin.Context})
		c.Session.Origin = &decide.Origin{Context: inner.Context, WorkingDir: origin.WorkingDir, Env: slices.Clone(origin.Env)}
		for i := range origin.Refs {
			c.Session.Origin.Refs = append(c.Session.Origin.Refs, *origin.Refs[i].DeepCopy())
		}
	}
	c.Named, c.Skill, c.Policies.Named = s.Named.DeepCopy(), s.Skill.DeepCopy(), s.Policies.Named.DeepCopy()
	c.Defaults, c.Policies.Defaults = nil, nil
	for i := range s.Defaults {
		c.Defaults = append(c.Defaults, *s.Defaults[i].DeepCopy())
	}
	for i := range s.Policies.Defaults {
		c.Policies.Defaults = append(c.Policies.Defaults, *s.Policies.Defaults[i].DeepCopy())
	}
	return &c
}

func TestDecidingChangesNothingAndGivesTheSameEachTime(t *testing.T) {
	t.Parallel()
	for name, changes := range everySnapshot() {
		s := snapshot(changes...)
		before := deepCopy(s)
		first, firstErr := decide.Decide(s)
		decide.ReviewNeeded(s)
		for range 10 {
			again, err := decide.Decide(s)
			if diff := cmp.Diff(first, again) + cmp.Diff(text(firstErr), text(err)); diff != "" {
				t.Fatalf("%s: decided otherwise the second time: %s", name, diff)
			}
		}
		if diff := cmp.Diff(before, s, cmpopts.IgnoreFields(decide.Snapshot{}, "Compile")); diff != "" {
			t.Errorf("%s: the snapshot was changed: %s", name, diff)
		}
	}
}

// What is done with a decision doesn't reach the objects that it was made from, which are a cache's, nor the next one.
func TestADecisionSharesNothingThatItsHolderMayChange(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"a call with all layers", "a call in a session"} {
		for _, action := range []v1alpha1.ToolCallSpec{shell("ls"), code("python", "")} {
			testSharesNothing(t, snapshot(append(everySnapshot()[where], runs(action))...))
		}
	}
}

func testSharesNothing(t *testing.T, s *decide.Snapshot) {
	t.Helper()
	before := deepCopy(s)
	d := mustDecide(t, s)
	d.ArgvPrefix[0] = "changed"
	d.Plan.AllowedPaths[0], d.Plan.Blocklist[0] = "changed", "changed"
	for _, layer := range d.Plan.Layers {
		layer.Vars[0].Value = "changed"
	}
	for i := range d.Refs {
		d.Refs[i].Name = "changed"
	}
	for i := range d.SessionEnv {
		d.SessionEnv[i].Value = "changed"
	}
	if diff := cmp.Diff(before, s, cmpopts.IgnoreFields(decide.Snapshot{}, "Compile")); diff != "" {
		t.Error(diff)
	}
	if again := mustDecide(t, s); again.ArgvPrefix[0] == "changed" || again.Plan.Blocklist[0] == "changed" {
		t.Errorf("the next decision is %+v", again)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSpace(err.Error())
}
