package supervisor_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/supervisor"
)

// writePaths are where a call may write; nil for everywhere.
func writePaths(t *testing.T, e *supervisor.Executor, a *wire.Assignment) []string {
	t.Helper()
	var paths []string
	e.Run = func(_ context.Context, cmd runner.Command) result.Outcome {
		if cmd.Rules != nil {
			paths = cmd.Rules.WritePaths
		}
		return result.Outcome{Reason: result.CommandNotFound, Message: "none"}
	}
	if r := e.Execute(t.Context(), a); r.Outcome.Reason != result.CommandNotFound {
		t.Fatalf("got %+v", r.Outcome)
	}
	return paths
}

func layer(source envresolve.Source, home string) envresolve.Layer {
	return envresolve.Layer{Source: source, Vars: []envresolve.Var{{Name: "HOME", Value: home}, {Name: "X", Value: "/x"}}}
}

func TestACallOfASessionWritesBelowTheSessionsDirectories(t *testing.T) {
	t.Parallel()
	shared := []string{"/workspace", "/tmp"}
	for name, c := range map[string]struct {
		home   string
		change func(*supervisor.Executor, *wire.Assignment)
		want   []string
	}{
		"the image's home": {"", func(*supervisor.Executor, *wire.Assignment) {}, []string{"/root"}},
		"the call's own is none": {"", func(_ *supervisor.Executor, a *wire.Assignment) {
			a.Environment.Layers = []envresolve.Layer{layer(envresolve.SourceCall, "/usr")}
		}, []string{"/root"}},
		"the environment's home": {"", func(_ *supervisor.Executor, a *wire.Assignment) {
			a.Environment.Layers = []envresolve.Layer{layer(envresolve.SourceEnvironment, "/home/env"), layer(envresolve.SourceCall, "/usr")}
		}, []string{"/home/env"}},
		"the environment's home, by reference": {"", func(e *supervisor.Executor, a *wire.Assignment) {
			e.Environ = append(e.Environ, wire.EnvRefPrefix+"1=/home/ref")
			a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{{Name: "HOME", Ref: wire.EnvRefPrefix + "1"}}}}
		}, []string{"/home/ref"}},
		"the session's home": {"/home/session", func(_ *supervisor.Executor, a *wire.Assignment) {
			a.Environment.Layers = []envresolve.Layer{layer(envresolve.SourceEnvironment, "/home/env"), layer(envresolve.SourceCall, "/home/session")}
		}, []string{"/home/session"}},
		"a home that the policy strips": {"/home/session", func(e *supervisor.Executor, a *wire.Assignment) {
			a.Environment.Blocklist = []string{"HOME"}
		}, nil},
		"the root is no home":  {"", func(e *supervisor.Executor, _ *wire.Assignment) { e.Environ = []string{"HOME=/./"} }, nil},
		"a relative path":      {"home", func(*supervisor.Executor, *wire.Assignment) {}, nil},
		"no home":              {"", func(e *supervisor.Executor, _ *wire.Assignment) { e.Environ = nil }, nil},
		"an allowed directory": {"", func(_ *supervisor.Executor, a *wire.Assignment) { a.Environment.AllowedPaths = []string{"/usr"} }, []string{"/root", "/usr/lib"}},
		"allowed as it is":     {"", func(_ *supervisor.Executor, a *wire.Assignment) { a.Environment.AllowedPaths = []string{"/usr/lib/"} }, []string{"/root", "/usr/lib"}},
		"allowed by its sibling": {"", func(_ *supervisor.Executor, a *wire.Assignment) {
			a.Environment.AllowedPaths = []string{"/", "/usr/li", "/usr/lib/x"}
		}, []string{"/root"}},
		"the image's directory": {"", func(e *supervisor.Executor, a *wire.Assignment) {
			e.WorkingDir, a.Environment.AllowedPaths, a.Environment.WorkingDir = "/usr/lib", nil, ""
		}, []string{"/root", "/usr/lib"}},
	} {
		e := executor(t)
		e.Session, e.Rules = &wire.Begin{Home: c.home}, &rules.Rules{}
		a := shell(e, "")
		a.Environment.WorkingDir, a.Environment.AllowedPaths = "/usr/lib", []string{"/"}
		c.change(e, a)
		if got := writePaths(t, e, a); !slices.Equal(got, append(slices.Clone(shared), c.want...)) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A link that a call has made doesn't make what it leads to a place to write.
func TestAnAllowedLinkIsNoPlaceToWrite(t *testing.T) {
	t.Parallel()
	e := executor(t)
	link := filepath.Join(e.WorkingDir, "link")
	if err := os.Symlink("/usr", link); err != nil {
		t.Fatal(err)
	}
	e.Session, e.Rules = &wire.Begin{}, &rules.Rules{}
	a := shell(e, "")
	a.Environment.WorkingDir, a.Environment.AllowedPaths = link+"/lib", []string{link}
	if got := writePaths(t, e, a); !slices.Equal(got, []string{"/workspace", "/tmp", "/root"}) {
		t.Errorf("got %q", got)
	}
}

func TestAPolicysWritePathsAreTheSessionsToo(t *testing.T) {
	t.Parallel()
	for _, given := range [][]string{{}, {"/data"}} {
		e := executor(t)
		e.Session, e.Rules = &wire.Begin{}, &rules.Rules{}
		a := shell(e, "")
		a.Rules = &rules.Rules{WritePaths: given}
		if got := writePaths(t, e, a); got == nil || !slices.Equal(got, given) {
			t.Errorf("%q: got %q", given, got)
		}
	}
	// Of a policy without them, whatever else it has.
	e := executor(t)
	e.Session, e.Rules = &wire.Begin{}, &rules.Rules{}
	a := shell(e, "")
	a.Rules = &rules.Rules{Policy: "agents", ReadPaths: []string{"/data"}, Programs: &rules.Programs{Own: "sh"}}
	if got := writePaths(t, e, a); !slices.Equal(got, []string{"/workspace", "/tmp", "/root", e.WorkingDir}) || a.Rules.WritePaths != nil {
		t.Errorf("got %q", got)
	}
	// Where the node can't keep a session's calls apart, it can't bound their writing either.
	e.Rules = nil
	if got := writePaths(t, e, a); got != nil {
		t.Errorf("without Landlock: got %q", got)
	}
}

func TestACallWithAPodOfItsOwnWritesWhereItsPolicySays(t *testing.T) {
	t.Parallel()
	e := executor(t)
	for _, given := range []*rules.Rules{nil, {ReadPaths: []string{"/data"}}} {
		a := shell(e, "")
		a.Rules = given
		if got := writePaths(t, e, a); got != nil {
			t.Errorf("%+v: got %q", given, got)
		}
	}
	// A node without Landlock holds nothing, and a session without a policy's rules doesn't ask for it.
	e.Session = &wire.Begin{}
	if got := writePaths(t, e, shell(e, "")); got != nil {
		t.Errorf("got %q", got)
	}
}
