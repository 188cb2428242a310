package envresolve

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// dice turns fuzzed bytes into choices; when they run out every choice is the first.
type dice struct{ data []byte }

func (d *dice) roll(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % n
}

func (d *dice) pick(list ...string) string { return list[d.roll(len(list))] }

// variables gives a layer's, with names that collide often and are wrong now and then.
func (d *dice) variables(byRef bool) []Var {
	var vars []Var
	for range d.roll(6) {
		v := Var{Name: d.pick("A", "B", "C", "AWS_A", "AWS_B", "LANG", "TERM", "PATH", "HOME", "RUNNER_X", "REF_1", "a", "1A")}
		v.Value = d.pick("", "x", "y=z", "line\nline", "\x00", "ü", strings.Repeat("v", 70000))
		if byRef && d.roll(3) == 1 {
			v.Value, v.Ref, v.Optional = "", d.pick("REF_1", "REF_2", "REF_3"), d.roll(2) == 1
		}
		vars = append(vars, v)
	}
	return vars
}

func (d *dice) environment(name string) *Environment {
	if d.roll(4) == 3 {
		return nil
	}
	return &Environment{Name: name, InheritMinimal: d.roll(4) == 1, Vars: d.variables(true)}
}

func (d *dice) input() Input {
	in := Input{
		Default:          d.environment("default"),
		Named:            d.environment("named"),
		Skill:            d.variables(true),
		Call:             Call{Vars: d.variables(false)},
		TrustedRequested: d.roll(2) == 1,
	}
	if d.roll(4) == 1 && in.Named != nil {
		in.Named.Name = "default"
	}
	in.Call.WorkingDir = d.pick("", "/workspace")
	for range d.roll(4) {
		in.Blocklist = append(in.Blocklist, d.pick("AWS_", "A", "T", "LANG", "RE", "1", "PATHX"))
	}
	return in
}

func (d *dice) image() []string {
	var image []string
	for range d.roll(12) {
		name := d.pick("A", "AWS_A", "HOME", "PATH", "LANG", "TERM", "REF_1", "REF_2", "RUNNER_X", "JAVA_HOME", "",
			"BASH_FUNC_ls%%", "with.dot", " A", "=", "novalue")
		image = append(image, name+d.pick("=", "=i", "=j", "=() { id; }", "", "=\x00", "=a=b"))
	}
	return image
}

func isRunners(name string) bool { return strings.HasPrefix(name, "RUNNER_") }

// FuzzResolve holds Resolve to the reference, to the invariants of the package, and to being independent
// of the order within layers.
func FuzzResolve(f *testing.F) {
	f.Add([]byte("seed"), "A=1\nAWS_X=2")
	f.Add([]byte{0, 0, 3, 1, 1, 1, 2, 2, 2, 9, 9, 9, 1, 0, 4, 4, 4, 5, 5, 5, 6, 6, 7, 1}, "REF_1=secret")
	for i := range 64 {
		f.Add(slices.Repeat([]byte{byte(i * 3), byte(i*7 + 1), byte(i * 13)}, 30), "REF_2=two\nHOME=/")
	}
	f.Fuzz(func(t *testing.T, data []byte, raw string) {
		d := &dice{data: data}
		in := d.input()
		image := append(d.image(), strings.Split(raw, "\n")...)
		want, ok := referenceResolve(in, image, isRunners)
		plan := MakePlan(in)
		got, err := Resolve(&plan, image, isRunners)
		if (err == nil) != ok {
			t.Fatalf("error %v, reference ok %v\n%+v\n%q", err, ok, in, image)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); ok && diff != "" {
			t.Fatalf("-want +got:\n%s\n%+v\n%q", diff, in, image)
		}
		checkInvariants(t, &plan, got)
		checkNeededRefs(t, &plan, image, got, err)
		checkOrder(t, in, image, got)
	})
}

func checkInvariants(t *testing.T, plan *Plan, got Resolved) {
	t.Helper()
	var names []string
	for i, kv := range got.Env {
		name := nameOf(kv)
		names = append(names, name)
		switch {
		case name != got.Vars[i].Name:
			t.Errorf("Env and Vars differ at %d: %q, %q", i, name, got.Vars[i].Name)
		case !nameRule.MatchString(name) || strings.ContainsRune(kv, 0) || isRunners(name):
			t.Errorf("%q must not reach a process", kv)
		case isBlocked(plan.Blocklist, name) && (!plan.Trusted || got.Vars[i].Source == SourceImage):
			t.Errorf("blocked %q reached the process", kv)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(names)) != len(got.Env) {
		t.Errorf("names aren't sorted and unique: %q", names)
	}
	if !slices.IsSorted(got.Stripped) {
		t.Errorf("stripped isn't sorted: %q", got.Stripped)
	}
}

// checkNeededRefs takes away every reference that isn't needed: nothing may change.
func checkNeededRefs(t *testing.T, plan *Plan, image []string, got Resolved, err error) {
	t.Helper()
	needed := plan.NeededRefs()
	fewer := slices.DeleteFunc(slices.Clone(image), func(kv string) bool {
		name := nameOf(kv)
		return strings.HasPrefix(name, "REF_") && !slices.Contains(needed, name) && usesRef(plan, name)
	})
	again, err2 := Resolve(plan, fewer, isRunners)
	if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" || (err == nil) != (err2 == nil) {
		t.Errorf("references beyond %q matter: %v, %v\n%s", needed, err, err2, diff)
	}
}

func usesRef(plan *Plan, ref string) bool {
	for _, layer := range plan.Layers {
		if slices.ContainsFunc(layer.Vars, func(v Var) bool { return v.Ref == ref }) {
			return true
		}
	}
	return false
}

func checkOrder(t *testing.T, in Input, image []string, got Resolved) {
	t.Helper()
	for _, vars := range layersOf(in) {
		seen := map[string]bool{}
		for _, v := range vars {
			if seen[v.Name] {
				return // Order matters among variables of one name.
			}
			seen[v.Name] = true
		}
		slices.Reverse(vars)
	}
	plan := MakePlan(in)
	again, _ := Resolve(&plan, image, isRunners)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("order within a layer matters:\n%s", diff)
	}
}

func layersOf(in Input) [][]Var {
	layers := [][]Var{in.Skill, in.Call.Vars}
	for _, env := range []*Environment{in.Default, in.Named} {
		if env != nil {
			layers = append(layers, env.Vars)
		}
	}
	return layers
}

// path makes one out of few names, so that it often leads somewhere.
func (d *dice) path(absolute bool) string {
	var b strings.Builder
	for range 1 + d.roll(4) {
		if b.Len() > 0 || absolute {
			b.WriteByte('/')
		}
		b.WriteString(d.pick("a", "b", "..", "workspace", "tmp", "l", "workspace2", ".", "f", ""))
	}
	return b.String()
}

func (d *dice) tree() *fakeFS {
	f := newFakeFS([]string{"/workspace/a/b", "/tmp/a"}, []string{"/workspace/f"}, nil)
	for range d.roll(10) {
		name := cleanName(d.path(true))
		if _, taken := f.entries[name]; taken || name == "/" || !f.parentsAreDirectories(name) {
			continue
		}
		entry := Entry{Kind: Kind(d.roll(3))}
		if entry.Kind == KindLink {
			entry.Target = d.path(d.roll(2) == 1)
		}
		f.add(name, entry)
		f.denied[name] = d.roll(16) == 1
		f.locked[name] = d.roll(16) == 1
	}
	return f
}

func cleanName(name string) string {
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		if part != "" && part != "." && part != ".." {
			parts = append(parts, part)
		}
	}
	return "/" + strings.Join(parts, "/")
}

func (f *fakeFS) parentsAreDirectories(name string) bool {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if entry, ok := f.entries[dir]; ok && entry.Kind != KindDirectory {
			return false
		}
	}
	return true
}

// FuzzResolveDir holds ResolveDir to a realpath by recursion, over small trees full of links.
func FuzzResolveDir(f *testing.F) {
	f.Add([]byte("seed"), "/workspace/../workspace/a")
	for i := range 64 {
		f.Add(slices.Repeat([]byte{byte(i * 5), byte(i*11 + 2), byte(i*3 + 1), byte(i)}, 30), "l/../a")
	}
	f.Fuzz(func(t *testing.T, data []byte, dir string) {
		if len(dir) > 1000 {
			return
		}
		d := &dice{data: data}
		fsys := d.tree()
		requests := []DirRequest{
			{WorkingDir: d.path(true), ImageWorkingDir: "/", AllowedPaths: []string{d.path(true), d.path(false)}},
			{WorkingDir: d.path(false), ImageWorkingDir: d.path(true)},
			{WorkingDir: strings.ReplaceAll(dir, "\x00", ""), ImageWorkingDir: "/workspace", AllowedPaths: []string{"/l", "/workspace"}},
		}
		for _, req := range requests {
			wantDir, wantReason := referenceResolveDir(fsys, req)
			got, err := ResolveDir(fsys, req)
			if got != wantDir || reasonOf(err) != wantReason {
				t.Errorf("%+v: got %q, %v; want %q, %s\n%v", req, got, err, wantDir, wantReason, fsys.entries)
			}
		}
	})
}
