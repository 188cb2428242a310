package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// A loader that comes with an application or a toolchain is recognized by what it is.
func TestAListedLoaderRunsNoOtherFiles(t *testing.T) {
	a := newAttacker(t)
	code := readFile(t, a.loader)
	tools := filepath.Join(a.bin, "tools")
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	loader := write(t, tools, "any-name", code, 0o755)
	script := write(t, tools, "script", "#!"+loader+" "+a.work+"/evil\n", 0o755)
	for name, allowed := range map[string]string{"in a listed directory": tools + "/", "by its path": loader} {
		o := held(t, &rules.Rules{WritePaths: []string{a.work}, Programs: &rules.Programs{Allowed: []string{allowed, script}}},
			loader+" "+a.work+"/evil mark "+a.work+"/mark-loader; "+script+" mark "+a.work+"/mark-script")
		if len(a.marks(t)) > 0 {
			t.Errorf("%s: an unlisted program ran: %s\nexecuted %+v", name, describe(o), o.Executed)
		}
		if want := (result.Program{Path: loader, Count: 2, Rule: result.RuleLoader}); !slices.Equal(o.Refused, result.Programs{want}) {
			t.Errorf("%s: refused %+v", name, o.Refused)
		}
	}
}

// Programs of every kind are none.
func TestProgramsOfEveryKindRun(t *testing.T) {
	bin, work := worlds(t)
	needs(t, "gcc", "go")
	source := write(t, work, "p.c", "#include <unistd.h>\nint main() { write(1, \"ran\\n\", 4); return 0; }\n", 0o644)
	write(t, work, "p.go", "package main\nfunc main() { print(\"\"); println() }\n", 0o644)
	for name, build := range map[string][]string{
		"static-pie": {"gcc", "-static-pie", source}, "static": {"gcc", "-static", source}, "pie": {"gcc", "-pie", "-fPIE", source},
		"not-pie": {"gcc", "-no-pie", source}, "go": {"go", "build"}, "go-pie": {"go", "build", "-buildmode=pie"},
	} {
		program := filepath.Join(bin, name)
		cmd := exec.Command(build[0], slices.Insert(slices.Clone(build[1:]), min(len(build)-1, 1), "-o", program)...)
		if build[0] == "go" {
			cmd = exec.Command(build[0], append(slices.Clone(build[1:]), "-o", program, filepath.Join(work, "p.go"))...)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		for _, allowed := range []string{program, bin + "/"} {
			o := held(t, &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{allowed}}}, program)
			if len(o.Refused) > 0 || o.Reason != result.Completed {
				t.Errorf("%s by %s: %s\nrefused %+v", name, allowed, describe(o), o.Refused)
			}
		}
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
