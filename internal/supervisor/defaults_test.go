package supervisor_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/spec"
)

// setting is a plan's layer of the environment with one variable.
func setting(name, value string) []envresolve.Layer {
	return []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{{Name: name, Value: value}}}}
}

func TestWhatAProcessFindsUnlessASourceSetsIt(t *testing.T) {
	tmp := temporary(t)
	for name, c := range map[string]struct {
		image     string
		layers    []envresolve.Layer
		blocklist []string
		script    string
		want      string
	}{
		"output isn't buffered":         {script: `echo "$PYTHONUNBUFFERED"`, want: "1"},
		"not even with the image's own": {image: "PYTHONUNBUFFERED=", script: `echo "${PYTHONUNBUFFERED-unset}"`, want: ""},
		"an environment's value":        {layers: setting("PYTHONUNBUFFERED", "0"), script: `echo "$PYTHONUNBUFFERED"`, want: "0"},
		"a blocked variable":            {blocklist: []string{"PYTHON"}, script: `echo "${PYTHONUNBUFFERED-unset}"`, want: "unset"},
		"a home that can be written to": {image: "HOME=" + tmp, script: `echo "$HOME"`, want: tmp},
		"one that is no directory":      {image: "HOME=/dev/null", script: `echo x >"$HOME/f"; cat "$HOME/f"; stat -c "%a %n" "$HOME"`, want: "x\n700 " + tmp + "/.home"},
		"one that isn't there":          {image: "HOME=/nonexistent", script: `echo "$HOME"`, want: tmp + "/.home"},
		"none":                          {script: `echo "$HOME"`, want: tmp + "/.home"},
		"one that an environment sets":  {layers: setting("HOME", "/nonexistent"), script: `echo "$HOME"`, want: "/nonexistent"},
		"git trusts all directories":    {script: `echo "$GIT_CONFIG_COUNT $GIT_CONFIG_KEY_0 $GIT_CONFIG_VALUE_0"`, want: "1 safe.directory *"},
	} {
		t.Run(name, func(t *testing.T) {
			e := executor(t)
			e.Environ = []string{"PATH=/usr/bin:/bin", c.image}
			a := shell(e, c.script)
			a.Environment.Layers, a.Environment.Blocklist = c.layers, c.blocklist
			r := execute(t, e, a)
			if got := strings.TrimSuffix(string(r.Outcome.Stdout.Head), "\n"); got != c.want {
				t.Errorf("got %q, want %q; %s", got, c.want, r.Outcome.Stderr.Head)
			}
		})
	}
}

// A path below ~ is the same file for a command, for an operation on files, and for a transfer.
func TestTheHomeDirectoryIsTheSameForCommandsAndFiles(t *testing.T) {
	tmp := temporary(t)
	for name, c := range map[string]struct {
		image     string
		layers    []envresolve.Layer
		blocklist []string
		want      string
	}{
		"one that can be written to":   {image: "HOME=" + tmp, want: tmp},
		"one that can't":               {image: "HOME=/nonexistent", want: tmp + "/.home"},
		"none":                         {want: tmp + "/.home"},
		"one that an environment sets": {image: "HOME=/nonexistent", layers: setting("HOME", tmp), want: tmp},
		"one that may not be set":      {image: "HOME=/nonexistent", blocklist: []string{"HOME"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := executor(t)
			e.Environ = []string{"PATH=/usr/bin:/bin", c.image}
			command := shell(e, `echo "$HOME"`)
			command.Environment.Layers, command.Environment.Blocklist = c.layers, c.blocklist
			r := execute(t, e, command)
			if got := strings.TrimSuffix(string(r.Outcome.Stdout.Head), "\n"); got != c.want {
				t.Errorf("a command's is %q, want %q", got, c.want)
			}
			_, request, err := e.TransferRules(&wire.Transfer{Path: "~/f", Environment: command.Environment})
			if err != nil || request.Home != c.want {
				t.Errorf("a transfer's is %q, want %q; %v", request.Home, c.want, err)
			}
			operation := fileCall(e, spec.File{Operation: "Write", Path: "~/f", Content: []byte("x"), Rules: spec.FileRules{WritePaths: []string{tmp}}})
			operation.Environment = command.Environment
			o := execute(t, e, operation).Outcome
			if c.want == "" && o.Reason == result.Completed || c.want != "" && (o.Reason != result.Completed || o.File.Path != c.want+"/f") {
				t.Errorf("an operation on files: %s, %s, %+v", o.Reason, o.Message, o.File)
			}
		})
	}
}

func TestWhatWasPrintedIsThereBeforeTheEnd(t *testing.T) {
	temporary(t)
	e := executor(t)
	ctx, stop := context.WithCancelCause(context.Background())
	e.Stdout = writerFunc(func(p []byte) {
		if bytes.HasSuffix(p, []byte("\n")) {
			stop(runner.Stop{Reason: result.TimedOut, Message: "seen"})
		}
	})
	r := e.Execute(ctx, snippet(e, "python", "import time\nprint('step 1')\ntime.sleep(600)", "python3"))
	if r.Outcome.Reason != result.TimedOut || string(r.Outcome.Stdout.Head) != "step 1\n" {
		t.Errorf("got %+v", r.Outcome)
	}
}

func TestGitWorksInDirectoriesOfOtherOwners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git isn't installed")
	}
	tmp, e := temporary(t), executor(t)
	e.Environ = []string{"PATH=" + filepath.Dir(git) + ":/usr/bin:/bin", "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
	for name, dir := range map[string]string{"the top of a volume": e.WorkingDir + "/a volume", "the temporary directory": tmp} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.MkdirAll(dir, 0o777), os.Chown(dir, 12345, 12345)); err != nil {
				t.Fatal(err)
			}
			init, look := exec.Command(git, "init", "-q", dir), exec.Command(git, "-C", dir, "rev-parse", "--show-toplevel")
			init.Env, look.Env = e.Environ, e.Environ
			if err := init.Run(); err != nil {
				t.Fatal(err)
			}
			if look.Run() == nil {
				t.Skip("git doesn't look at owners here")
			}
			a := shell(e, `cd "$AT"; git config user.name a && git status --short && git rev-parse --show-toplevel; git config user.email`)
			a.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{
				{Name: "AT", Value: dir},
				{Name: "GIT_CONFIG_COUNT", Value: "1"}, {Name: "GIT_CONFIG_KEY_0", Value: "user.email"}, {Name: "GIT_CONFIG_VALUE_0", Value: "a@example.org"},
			}}}
			r := execute(t, e, a)
			if got := string(r.Outcome.Stdout.Head); got != dir+"\na@example.org\n" {
				t.Errorf("got %q, %s", got, r.Outcome.Stderr.Head)
			}
		})
	}
}

func TestGitIsGivenNoConfigurationThatIsBlocked(t *testing.T) {
	temporary(t)
	for _, blocked := range []string{"GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"} {
		e := executor(t)
		a := shell(e, `env | grep ^GIT_CONFIG; true`)
		a.Environment.Trusted, a.Environment.Blocklist = false, []string{blocked}
		if got := string(execute(t, e, a).Outcome.Stdout.Head); got != "" {
			t.Errorf("without %s: %q", blocked, got)
		}
	}
}
