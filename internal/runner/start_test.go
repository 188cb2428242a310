package runner

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/result"
)

func TestWhatCannotBeStartedHasNoExitCode(t *testing.T) {
	dir := publicDir(t)
	write(t, dir, "plain", "not a program", 0o644)
	write(t, dir, "noexec", "echo hi\n", 0o755)
	write(t, dir, "nointerpreter", "#!/no/such/interpreter -x\necho hi\n", 0o755)
	write(t, dir, "crlf", "#!/bin/sh\r\necho hi\r\n", 0o755)
	write(t, dir, "empty", "", 0o755)
	write(t, dir, "garbage", "\x7fELF\x02\x01\x01 garbage", 0o755)
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	inPath := func(argv ...string) Command {
		cmd := program(argv...)
		cmd.Env = []string{"PATH=relative:" + dir + "::/usr/bin:/bin"}
		return cmd
	}
	for name, c := range map[string]struct {
		cmd     Command
		reason  string
		message string
	}{
		"nothing":                      {inPath(), result.CommandNotFound, "no command"},
		"an empty name":                {inPath(""), result.CommandNotFound, "no command"},
		"a command of shells":          {inPath("ulimit"), result.CommandNotFound, "It is a command of shells: use a shell call."},
		"an unknown name":              {inPath("nosuchcommand"), result.CommandNotFound, `"nosuchcommand" was not found in PATH (relative:` + dir},
		"without a PATH":               {Command{Argv: []string{"true"}, Dir: "/"}, result.CommandNotFound, "has no PATH"},
		"not executable":               {inPath("plain"), result.CommandNotFound, "permission denied"},
		"not executable, by its path":  {inPath(dir + "/plain"), result.CommandNotFound, "permission denied"},
		"a directory":                  {inPath("directory"), result.CommandNotFound, "not found in PATH"},
		"a directory by its path":      {inPath(dir + "/directory"), result.CommandNotFound, "permission denied"},
		"a path that doesn't exist":    {inPath(dir + "/nothing"), result.CommandNotFound, "does not exist"},
		"a command line":               {inPath("ls -la"), result.CommandNotFound, "args are its arguments"},
		"a pipe":                       {inPath("ls|wc"), result.CommandNotFound, "No shell reads it: use a shell call."},
		"a variable in a path":         {inPath("$HOME/bin/x"), result.CommandNotFound, "No shell reads it: use a shell call."},
		"a file as directory":          {inPath(dir + "/plain/x"), result.CommandNotFound, "does not exist"},
		"a script without #!":          {inPath("noexec"), result.CommandNotFound, "no #! line"},
		"an empty script":              {inPath("empty"), result.CommandNotFound, "no #! line"},
		"a broken program":             {inPath("garbage"), result.CommandNotFound, "can"},
		"a missing interpreter":        {inPath("nointerpreter"), result.CommandNotFound, `interpreter "/no/such/interpreter" does not exist`},
		"an interpreter with a CR":     {inPath("crlf"), result.CommandNotFound, `interpreter "/bin/sh\\r" does not exist`},
		"an argument too long":         {inPath("echo", strings.Repeat("x", 200<<10)), result.InvalidEnvironment, "larger than the kernel takes"},
		"arguments too long":           {inPath(append([]string{"echo"}, manyArgs()...)...), result.InvalidEnvironment, "larger than the kernel takes"},
		"a NUL byte":                   {inPath("echo", "a\x00b"), result.InvalidEnvironment, "NUL"},
		"a directory that isn't there": {in(program("true"), dir+"/nowhere"), result.WorkingDirNotFound, "nowhere"},
		"a file as working directory":  {in(program("true"), dir+"/plain"), result.WorkingDirNotFound, "not a directory"},
		"no directory at all":          {in(program("true"), ""), result.WorkingDirNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := runIt(t, t.Context(), c.cmd)
			want{reason: c.reason}.check(t, o)
			if o.Started || !strings.Contains(o.Message, c.message) || len(o.Message) > 2000 {
				t.Errorf("got message %.3000q", o.Message)
			}
		})
	}
}

func in(cmd Command, dir string) Command {
	cmd.Dir = dir
	return cmd
}

func manyArgs() []string {
	args := make([]string, 60)
	for i := range args {
		args[i] = strings.Repeat("x", 100<<10)
	}
	return args
}

func TestLookupUsesTheCommandsOwnPath(t *testing.T) {
	first, second := publicDir(t), publicDir(t)
	write(t, first, "tool", "not executable", 0o644)
	write(t, second, "tool", "#!/bin/sh\necho second\n", 0o755)
	write(t, second, "true", "#!/bin/sh\necho shadowed\n", 0o755)
	for name, want := range map[string]string{"tool": "second\n", "true": "shadowed\n"} {
		cmd := program(name)
		cmd.Env = []string{"PATH=" + first + ":" + second, "PATH=/bin"}
		completed(want, "").check(t, runIt(t, t.Context(), cmd))
	}
	// By a path, relative to the directory that it starts in.
	cmd := in(program("./tool"), second)
	completed("second\n", "").check(t, runIt(t, t.Context(), cmd))
}

func TestTheOpenDirectoryIsTheOneItStartsIn(t *testing.T) {
	base := publicDir(t)
	checked, moved := filepath.Join(base, "checked"), filepath.Join(base, "moved")
	if err := os.Mkdir(checked, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(checked)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.Rename(checked, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", checked); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Getwd()
	cmd := in(program("pwd", "-P"), checked)
	cmd.DirFD = dir
	completed(moved+"\n", "").check(t, runIt(t, t.Context(), cmd))
	if after, _ := os.Getwd(); after != before {
		t.Errorf("we were moved to %s", after)
	}
	if _, err := dir.Stat(); err != nil {
		t.Errorf("the caller's directory was closed: %v", err)
	}
}

func TestASwappedDirectoryIsNeverEntered(t *testing.T) {
	base := publicDir(t)
	real, link := filepath.Join(base, "real"), filepath.Join(base, "link")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			next := filepath.Join(base, "next")
			_ = os.Symlink([]string{real, "/etc"}[i%2], next)
			_ = os.Rename(next, link)
		}
	}()
	defer func() { close(stop); <-stopped }()
	for range 50 {
		dir, err := os.Open(link)
		if err != nil {
			continue
		}
		// What a resolver would refuse never gets as far as Run.
		if path, _ := os.Readlink("/proc/self/fd/" + itoa(int(dir.Fd()))); path == real {
			cmd := in(program("pwd", "-P"), link)
			cmd.DirFD = dir
			completed(real+"\n", "").check(t, Run(t.Context(), cmd))
		}
		dir.Close()
	}
}

func TestOOM(t *testing.T) {
	kills := func(after uint64) func() (uint64, bool) {
		calls := uint64(0)
		return func() (uint64, bool) { calls++; return 5 + (calls-1)*after, true }
	}
	unknown := func() (uint64, bool) { return 0, false }
	for name, c := range map[string]struct {
		script string
		kills  func() (uint64, bool)
		want   want
		killed bool
	}{
		"the process itself":      {"kill -KILL $$", kills(1), want{reason: result.OOMKilled, signal: "SIGKILL"}, true},
		"passed on by a shell":    {"exit 137", kills(1), want{reason: result.OOMKilled}, true},
		"a child, and it went on": {"exit 0", kills(1), want{reason: result.Completed, exit: result.Exit(0)}, true},
		"a child, and it failed":  {"exit 3", kills(1), want{reason: result.NonZeroExit, exit: result.Exit(3)}, true},
		"another signal":          {"kill -TERM $$", kills(1), want{reason: result.Signaled, signal: "SIGTERM"}, true},
		"somebody's SIGKILL":      {"kill -KILL $$", kills(0), want{reason: result.Signaled, signal: "SIGKILL"}, false},
		"nobody knows":            {"kill -KILL $$", unknown, want{reason: result.Signaled, signal: "SIGKILL"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := bash(c.script)
			cmd.oomKills = c.kills
			o := runIt(t, context.Background(), cmd)
			c.want.check(t, o)
			if o.OOMKilled != c.killed {
				t.Errorf("OOMKilled is %v", o.OOMKilled)
			}
		})
	}
}

func TestAnOOMKillInASharedContainerIsNotSaidToBeTheCommands(t *testing.T) {
	for name, c := range map[string]struct {
		beside bool
		want   string
	}{
		"alone":       {false, "the kernel killed one of its processes for memory."},
		"with others": {true, "that may have been another command's."},
	} {
		calls := uint64(0)
		cmd := bash("exit 3")
		cmd.Beside, cmd.oomKills = c.beside, func() (uint64, bool) { calls++; return calls, true }
		if o := runIt(t, t.Context(), cmd); !strings.HasSuffix(o.Message, c.want) {
			t.Errorf("%s: %s", name, o.Message)
		}
	}
}
