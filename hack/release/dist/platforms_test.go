package dist

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/yaml"
)

const module = "toolcall.dev/operator/"

// Building the plugin for every platform takes minutes where nothing is in the build cache. What can differ between
// platforms is what the compiler finds first: files that aren't there, names that a package has elsewhere only. So
// each platform's files are read and checked, those of other modules without what is inside their functions.
func TestThePluginIsSoundOnEveryPlatformOfKrewsManifest(t *testing.T) {
	if testing.Short() {
		t.Skip("reads everything that the plugin is made of, once for each platform")
	}
	for _, platform := range krewPlatforms(t) {
		t.Run(platform, func(t *testing.T) {
			for _, fault := range faults(t, platform, "./cmd/kubectl-toolcall") {
				t.Error(fault)
			}
		})
	}
}

// The check finds what it is for.
func TestAProgramThatIsUnsoundOnOnePlatform(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":  "module toolcall.dev/operator/unsound\n\ngo 1.26.0\n",
		"main.go": "package main\n\nimport \"syscall\"\n\nfunc main() { _ = syscall.Kill(1, 0) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if found := faultsIn(t, dir, "linux/amd64", "."); len(found) != 0 {
		t.Errorf("on Linux: %v", found)
	}
	found := faultsIn(t, dir, "windows/amd64", ".")
	if len(found) != 1 || !strings.Contains(found[0], "syscall.Kill") {
		t.Errorf("on Windows: %v", found)
	}
}

func krewPlatforms(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../../../config/krew/toolcall.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec struct {
			Platforms []struct {
				Selector struct {
					MatchLabels map[string]string `json:"matchLabels"`
				} `json:"selector"`
			} `json:"platforms"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(raw, &manifest); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range manifest.Spec.Platforms {
		all = append(all, p.Selector.MatchLabels["os"]+"/"+p.Selector.MatchLabels["arch"])
	}
	if len(all) < 6 {
		t.Fatalf("krew's manifest has %v only", all)
	}
	return all
}

func faults(t *testing.T, platform, pattern string) []string {
	return faultsIn(t, "../../..", platform, pattern)
}

// faultsIn lists what is wrong with a package, and with those of the project that it imports, on a platform; and
// everything that it needs and that isn't there.
func faultsIn(t *testing.T, dir, platform, pattern string) []string {
	t.Helper()
	system, arch, _ := strings.Cut(platform, "/")
	ours, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
		Context: t.Context(),
		Dir:     dir,
		Env:     append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off"),
		ParseFile: func(set *token.FileSet, name string, source []byte) (*ast.File, error) {
			file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
			if err == nil && !strings.HasPrefix(name, ours+string(filepath.Separator)) {
				dropBodies(file)
			}
			return file, err
		},
	}, pattern)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			// Without the insides of functions, other modules seem to import what they don't use.
			if e.Kind != packages.TypeError || strings.HasPrefix(p.PkgPath, module) {
				found = append(found, e.Error())
			}
		}
	})
	return found
}

func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if function, ok := d.(*ast.FuncDecl); ok {
			function.Body = nil
		}
	}
}
