package programs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func source(t *testing.T) string {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := FindSource(wd)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestEveryModuleResolvesAndListsItsProgramsAsTools(t *testing.T) {
	t.Parallel()
	tc := toolchain{version: "go1.0", os: "linux", arch: "amd64"}
	var all []Module
	for _, version := range append(olderNodes, "") {
		node, err := Catalogue(version, true)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, node...)
	}
	for _, version := range olderVersions {
		older, err := OlderAssets(version)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, older...)
	}
	for _, m := range all {
		dir := filepath.Join(source(t), "cluster", "modules", m.folder())
		r, err := resolve(m, dir, "/cache", tc)
		if err != nil {
			t.Fatal(err)
		}
		if want := "/cache/bin/" + m.folder() + "-" + r.Version + "-"; !strings.HasPrefix(r.Dir, want) {
			t.Errorf("%s is kept in %s, want %s...", m.Name, r.Dir, want)
		}
		gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Programs {
			// A module's own program is in its module line.
			if !strings.Contains(string(gomod), p.Package+"\n") {
				t.Errorf("%s/go.mod has no tool line for %s", m.Name, p.Package)
			}
		}
	}
}

func TestAnUnknownVersionOfTheNodeIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"1.33", "1.34.10", "../etcd", "v1.34"} {
		if _, err := Catalogue(bad, false); err == nil || !strings.Contains(err.Error(), "1.34") {
			t.Errorf("version %q: %v", bad, err)
		}
	}
}

func TestKeyChangesWithEverythingThatDecidesTheBuild(t *testing.T) {
	t.Parallel()
	tc := toolchain{version: "go1.1", os: "linux", arch: "amd64"}
	m := Module{Name: "m", Tags: "a"}
	base := key(m, "v1.0.0", sources{mod: []byte("mod"), sum: []byte("sum")}, tc)
	tagged, static, newer, arm := m, m, tc, tc
	tagged.Tags, static.Static, newer.version, arm.arch = "b", true, "go1.2", "arm64"
	stamped := m
	stamped.Stamp = func(v string) []string { return []string{"x=" + v} }
	others := map[string]string{
		"go.mod":    key(m, "v1.0.0", sources{mod: []byte("mods"), sum: []byte("um")}, tc),
		"go.sum":    key(m, "v1.0.0", sources{mod: []byte("mod"), sum: []byte("sun")}, tc),
		"code":      key(m, "v1.0.0", sources{mod: []byte("mod"), sum: []byte("sum"), code: []byte("code")}, tc),
		"tags":      key(tagged, "v1.0.0", sources{mod: []byte("mod"), sum: []byte("sum")}, tc),
		"linking":   key(static, "v1.0.0", sources{mod: []byte("mod"), sum: []byte("sum")}, tc),
		"stamps":    key(stamped, "v1.0.0", sources{mod: []byte("mod"), sum: []byte("sum")}, tc),
		"toolchain": key(m, "v1.0.0", sources{mod: []byte("mod"), sum: []byte("sum")}, newer),
		"machine":   key(m, "v1.0.0", sources{mod: []byte("mod"), sum: []byte("sum")}, arm),
	}
	for what, other := range others {
		if other == base {
			t.Errorf("the key ignores %s", what)
		}
	}
	if again := key(m, "v1.0.0", sources{mod: []byte("mod"), sum: []byte("sum")}, tc); again != base {
		t.Error("the same input gave two keys")
	}
}

func TestAModulesOwnCodeDecidesItsBuild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		write(t, dir, name, name)
	}
	read := func() string {
		src, err := readSources(dir)
		if err != nil {
			t.Fatal(err)
		}
		return string(src.code)
	}
	if got := read(); got != "" {
		t.Errorf("without code: %q", got)
	}
	write(t, dir, "a.go", "package a")
	before := read()
	write(t, dir, "a_test.go", "package a")
	if got := read(); got != before {
		t.Errorf("a test changed %q to %q", before, got)
	}
	write(t, dir, "a.go", "package b")
	if got := read(); got == before {
		t.Error("changed code isn't noticed")
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRequiredVersion(t *testing.T) {
	t.Parallel()
	const gomod = "module m\n\nrequire (\n\tk8s.io/api v0.36.3 // indirect\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n\nreplace k8s.io/api => k8s.io/api v0.36.3\n"
	if got, err := requiredVersion(gomod, "k8s.io/kubernetes"); err != nil || got != "v1.36.3" {
		t.Fatalf("got %q, %v", got, err)
	}
	if got, err := requiredVersion("require a.b/c v0.1.0\n", "a.b/c"); err != nil || got != "v0.1.0" {
		t.Fatalf("got %q, %v", got, err)
	}
	if _, err := requiredVersion(gomod, "k8s.io/kube"); err == nil {
		t.Fatal("a module that isn't required has a version")
	}
}

func TestFailedBuildLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := Resolved{Source: source(t), Dir: dir}
	if err := Build(r, []Program{{"x", "./no/such/package"}, {"y", "./no/other/package"}}); err == nil {
		t.Fatal("building nothing succeeded")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

func TestOlderAssetsHaveTheOlderAPIServerAlone(t *testing.T) {
	t.Parallel()
	modules, err := OlderAssets("1.33")
	if err != nil {
		t.Fatal(err)
	}
	all, err := Resolve(source(t), "/cache", modules)
	if err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{"kube-apiserver": "kubernetes-1.33-v1.33.", "etcd": "etcd-v", "kubectl": "kubernetes-v1.37."} {
		if got := Find(all, program); !strings.HasPrefix(got, "/cache/bin/"+want) {
			t.Errorf("%s is %s", program, got)
		}
	}
	newest, err := Catalogue("", true)
	if err != nil {
		t.Fatal(err)
	}
	node, err := Resolve(source(t), "/cache", newest)
	if err != nil {
		t.Fatal(err)
	}
	if assetsName(all) == assetsName(node) {
		t.Error("both versions have the same folder")
	}
	for _, bad := range []string{"1.3", "1.33.13", "../etcd", "v1.33"} {
		if _, err := OlderAssets(bad); err == nil || !strings.Contains(err.Error(), "1.33") {
			t.Errorf("version %q: %v", bad, err)
		}
	}
}
