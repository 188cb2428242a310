package runner

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// held runs a script in bash under an unprivileged supervisor.
func held(t testing.TB, r *rules.Rules, script string) result.Outcome {
	t.Helper()
	if r.Programs != nil && r.Programs.Own == "" {
		r.Programs.Own = "bash"
	}
	return superviseApart(t, supervision{
		Argv: []string{"bash", "-c", script}, Dir: "/", NoNewPrivs: true, Rules: r,
	}, nobody(t)).Outcome
}

// worlds makes a directory of programs that a call can't write to, and one that it can.
func worlds(t testing.TB) (programs, work string) {
	t.Helper()
	ownRules(t)
	base := publicDir(t)
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	programs, work = filepath.Join(base, "bin"), filepath.Join(base, "work")
	for dir, mode := range map[string]os.FileMode{programs: 0o755, work: 0o777} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	return programs, work
}

func TestAListedScriptNeedsItsInterpreterListed(t *testing.T) {
	bin, work := worlds(t)
	script := write(t, bin, "script", "#!/usr/bin/env perl\nprint \"ran\\n\";\n", 0o755)
	byLoader := write(t, bin, "by-loader", "#!"+newAttacker(t).loader+" /bin/echo\n", 0o755)
	nested := write(t, bin, "nested", "#!"+script+"\n", 0o755)
	needs(t, "perl")
	for name, c := range map[string]struct {
		run     string
		allowed []string
		stdout  string
		refused result.Programs
	}{
		"the script alone": {script, []string{script}, "", result.Programs{{Path: real(t, "env"), Count: 1, Rule: result.RuleInterpreter}}},
		"with env alone":   {script, []string{script, "env"}, "", result.Programs{{Path: real(t, "perl"), Count: 1, Rule: result.RuleNotListed}}},
		"with both":        {script, []string{script, "env", "perl"}, "ran\n", nil},
		"nested":           {nested, []string{nested, script, "env", "perl"}, "ran\n", nil},
		"nested alone":     {nested, []string{nested, "env", "perl"}, "", result.Programs{{Path: script, Count: 1, Rule: result.RuleInterpreter}}},
		"by a loader":      {byLoader, []string{byLoader, "echo"}, "", result.Programs{{Path: real2(t, newAttacker(t).loader), Count: 1, Rule: result.RuleLoader}}},
	} {
		o := held(t, &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: c.allowed}}, c.run)
		if diff := cmp.Diff(c.refused, o.Refused); diff != "" || text(o.Stdout) != c.stdout {
			t.Errorf("%s: %s\n%s", name, diff, describe(o))
		}
	}
}

func real2(t testing.TB, path string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNamesLeadOutsideWritablePathsOnly(t *testing.T) {
	bin, work := worlds(t)
	write(t, work, "tool", "#!/bin/bash\necho planted\n", 0o755)
	listed := write(t, bin, "tool", "#!/bin/bash\necho genuine\n", 0o755)
	linked := publicDir(t)
	if err := os.Chmod(linked, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(listed, filepath.Join(linked, "link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		programs rules.Programs
		script   string
		stdout   string
		writable result.Paths
		notFound result.Paths
	}{
		"a name":              {rules.Programs{Allowed: []string{"tool"}}, "tool", "genuine\n", nil, nil},
		"the planted one":     {rules.Programs{Allowed: []string{"tool"}}, work + "/tool", "", nil, nil},
		"a writable path":     {rules.Programs{Allowed: []string{work + "/tool"}}, work + "/tool", "", nil, result.Paths{work + "/tool"}},
		"permitted":           {rules.Programs{Allowed: []string{work + "/"}, AllowWritable: true}, work + "/tool", "planted\n", result.Paths{work + "/"}, nil},
		"a directory":         {rules.Programs{Allowed: []string{bin + "/"}}, listed, "genuine\n", nil, nil},
		"a link in one":       {rules.Programs{Allowed: []string{linked + "/"}}, linked + "/link", "genuine\n", nil, nil},
		"a file as directory": {rules.Programs{Allowed: []string{listed + "/"}}, listed, "", nil, result.Paths{listed + "/"}},
		"nothing":             {rules.Programs{Allowed: []string{"no-such"}}, listed, "", nil, result.Paths{"no-such"}},
	} {
		c.programs.Own = "bash"
		o := superviseApart(t, supervision{
			Argv: []string{"bash", "-c", c.script}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + work + ":" + bin + ":" + testPath},
			Rules: &rules.Rules{WritePaths: []string{work}, Programs: &c.programs},
		}, nobody(t)).Outcome
		// bash finds the planted tool first, is refused, and tells so.
		got := text(o.Stdout)
		if name == "a name" {
			o = superviseApart(t, supervision{
				Argv: []string{"tool"}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + work + ":" + bin + ":" + testPath},
				Rules: &rules.Rules{WritePaths: []string{work}, Programs: &c.programs},
			}, nobody(t)).Outcome
			got = text(o.Stdout)
		}
		if got != c.stdout || !slices.Equal(o.Isolation.Writable, c.writable) || !slices.Equal(o.Isolation.NotFound, c.notFound) {
			t.Errorf("%s: %s\n%+v", name, describe(o), o.Isolation)
		}
	}
}

func TestPathsHold(t *testing.T) {
	bin, work := worlds(t)
	secret := write(t, bin, "secret", "secret\n", 0o644)
	write(t, work, "data", "data\n", 0o644)
	for name, c := range map[string]struct {
		rules  rules.Rules
		script string
		stdout string
	}{
		"writing is restricted": {rules.Rules{WritePaths: []string{work}},
			"cd " + work + `; echo x > new; mkdir d; mv new d/; cat d/new; rm -r d; (echo x > /tmp/toolcall-escaped) 2>/dev/null || echo refused; echo > /dev/null; cat ` + secret,
			"x\nrefused\nsecret\n"},
		"nothing may be written": {rules.Rules{WritePaths: []string{}},
			`(echo x > ` + work + `/x) 2>/dev/null || echo refused; rm -f ` + work + `/data 2>/dev/null || echo kept; cat ` + work + `/data`,
			"refused\nkept\ndata\n"},
		"reading is restricted": {rules.Rules{ReadPaths: []string{work}},
			"cat " + work + "/data; cat " + secret + " 2>/dev/null || echo refused; cat /etc/passwd >/dev/null && echo system",
			"data\nrefused\nsystem\n"},
		"what may be written may be read": {rules.Rules{ReadPaths: []string{}, WritePaths: []string{work}},
			"echo x > " + work + "/y; cat " + work + "/y; cat " + secret + " 2>/dev/null || echo refused", "x\nrefused\n"},
		"shared memory may always be written": {rules.Rules{WritePaths: []string{}},
			"echo x > /dev/shm/toolcall-x && cat /dev/shm/toolcall-x && rm /dev/shm/toolcall-x", "x\n"},
		"a list of programs alone doesn't hold writing": {rules.Rules{Programs: &rules.Programs{Allowed: []string{"cat", "rm"}}},
			"echo x > /tmp/toolcall-x-$$ && cat /tmp/toolcall-x-$$ && rm /tmp/toolcall-x-$$", "x\n"},
		"programs that aren't listed can't be read": {rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"cat", "cp", "ls"}}},
			"cat /usr/bin/id >/dev/null 2>&1 || echo refused; cp /proc/self/root/usr/bin/id " + work + "/id 2>/dev/null || echo refused; cat /usr/bin/ls >/dev/null && echo listed; ls /usr/bin/id",
			"refused\nrefused\nlisted\n/usr/bin/id\n"},
		"memory can't be written by its file": {rules.Rules{Programs: &rules.Programs{Allowed: []string{"cat"}}},
			"(: > /proc/self/mem) 2>/dev/null || echo refused; cat /proc/self/comm", "refused\ncat\n"},
	} {
		o := held(t, &c.rules, c.script)
		if text(o.Stdout) != c.stdout {
			t.Errorf("%s: want %q, got %s", name, c.stdout, describe(o))
		}
		walls := result.Isolation{Self: o.Isolation.Self, Network: result.NetworkPod, Way: rules.WayLandlock, LandlockABI: o.Isolation.LandlockABI, Programs: c.rules.Programs != nil,
			Reads: c.rules.ReadPaths != nil, Writes: c.rules.WritePaths != nil, Signals: true}
		if diff := cmp.Diff(&walls, o.Isolation); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// multiCall is a program that says what it was called.
const multiCall = `
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	if (!strncmp(name, "busybox", 7) && argc > 1) name = argv[1];
	printf("I am %s\n", name);
	return 0;
}`

func TestNamesOfAMultiCallProgramAreLookedAt(t *testing.T) {
	bin, work := worlds(t)
	busybox := filepath.Join(bin, "busybox")
	compile(t, busybox, multiCall)
	for _, name := range []string{"one", "two"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
		hard := filepath.Join(bin, "hard")
		if err := os.Mkdir(hard, 0o755); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		if err := os.Link(busybox, filepath.Join(hard, name)); err != nil {
			t.Fatal(err)
		}
	}
	long := superviseApart(t, supervision{
		Argv: []string{"bash", "-c", `(exec -a "$(printf 'x%.0s' {1..508})/one/two" one)`}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath},
		Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"one"}, Own: "bash", AllowMultiCall: true}},
	}, nobody(t)).Outcome
	if text(long.Stdout) != "" || len(long.Refused) == 0 {
		t.Errorf("with a name that is cut: %s", describe(long))
	}
	for name, c := range map[string]struct{ script, stdout, refused string }{
		"listed":                       {"one", "I am one\n", ""},
		"not listed":                   {"two", "", bin + "/two"},
		"called another name":          {"(exec -a two one)", "", bin + "/two"},
		"the file's path":              {"(exec -a one " + busybox + ")", "I am one\n", ""},
		"as an argument":               {"(exec -a busybox one two)", "", bin + "/two"},
		"as an argument that's listed": {"(exec -a busybox one one)", "I am one\n", ""},
		"with a path for its name":     {"(exec -a /x/two one)", "", bin + "/two"},
		"its own name twice":           {"(exec -a busybox one busybox two)", "", bin + "/busybox busybox"},
	} {
		o := superviseApart(t, supervision{
			Argv: []string{"bash", "-c", c.script}, Dir: "/", NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath},
			Rules: &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"one"}, Own: "bash", AllowMultiCall: true}},
		}, nobody(t)).Outcome
		if text(o.Stdout) != c.stdout || (c.refused != "") != (len(o.Refused) > 0) ||
			c.refused != "" && (o.Refused[0].Path != c.refused || o.Refused[0].Rule != result.RuleName) {
			t.Errorf("%s: %s\nrefused %+v", name, describe(o), o.Refused)
		}
		if !slices.Equal(o.Isolation.NamesOnly, result.Paths{busybox}) {
			t.Errorf("%s: names only: %q", name, o.Isolation.NamesOnly)
		}
	}
}

func TestNothingRunsWhenTheSupervisorIsGone(t *testing.T) {
	inEveryWay(t, &rules.Rules{Programs: &rules.Programs{}}, nothingRunsWithoutSupervisor)
}

func nothingRunsWithoutSupervisor(t *testing.T, w rules.Way) {
	_, work := worlds(t)
	// After the supervisor's end true can't be executed. The shell goes on with what it has in itself.
	script := "cd " + work + `; echo $$ > pid; while true | true && /bin/true; do :; done; (ls > ls) 2> error; echo $? > ended`
	var paths []string
	if w.Landlock > 0 {
		paths = []string{work}
	}
	s := supervision{Argv: []string{"bash", "-c", script}, Dir: "/", NoNewPrivs: true, Node: node, Env: []string{"PATH=" + testPath},
		Rules: &rules.Rules{WritePaths: paths, Programs: &rules.Programs{Own: "bash", Allowed: []string{"true", "ls"}}}}
	arg, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(publicSelf(t), string(arg))
	cmd.Env = []string{helperVariable + "=supervise"}
	cmd.SysProcAttr = nobody(t)
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(work, name))
		return string(bytes.TrimSpace(data))
	}
	await(t, "command", func() bool { return read("pid") != "" })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	pid, _ := strconv.Atoi(read("pid"))
	// It ends, or the kernel kills it: a process that is traced dies with its tracer. What isn't reaped is still a process.
	await(t, "end of the command", func() bool {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return read("ended") != "" || unix.Kill(pid, 0) != nil
	})
	if read("ls") != "" || read("ended") == "0" {
		t.Errorf("ls ran: %q", read("ls"))
	}
	if read("ended") != "" && !strings.Contains(read("error"), "not implemented") {
		t.Errorf("it got %q", read("error"))
	}
	reapOrphans(t)
}

// reapOrphans waits for what a killed supervisor left: after an earlier test this process is their parent.
func reapOrphans(t *testing.T) {
	t.Helper()
	await(t, "end of the orphans", func() bool {
		left := false
		for _, p := range proc.All() {
			if p.Parent == os.Getpid() {
				left = true
				_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
			}
		}
		return !left
	})
}

func TestACallDoesNotStartWhereTheNodeCannotHoldItsRules(t *testing.T) {
	_, work := worlds(t)
	programs := &rules.Rules{WritePaths: []string{work}, Programs: &rules.Programs{Allowed: []string{"/"}, Own: "bash"}}
	paths := &rules.Rules{WritePaths: []string{work}}
	for name, c := range map[string]struct {
		denied  []uint32
		ioctl   uint32
		message string
		// paths says that rules about paths alone can't be held either.
		paths bool
	}{
		"Landlock":        {[]uint32{unix.SYS_LANDLOCK_CREATE_RULESET}, 0, "no Landlock.", true},
		"a domain":        {[]uint32{unix.SYS_LANDLOCK_RESTRICT_SELF}, 0, "no Landlock.", true},
		"a filter":        {[]uint32{unix.SYS_SECCOMP}, 0, "no seccomp filter.", true},
		"descriptors":     {nil, unix.SECCOMP_IOCTL_NOTIF_ADDFD, "", false}, // a trace does without
		"reading memory":  {[]uint32{unix.SYS_PROCESS_VM_READV}, 0, "no right to read the memory", false},
		"tracing":         {[]uint32{unix.SYS_PTRACE}, 0, "no right to trace", false},
		"all but nothing": {nil, 0, "", false},
	} {
		for _, r := range []*rules.Rules{programs, paths, nil} {
			marker := filepath.Join(work, "ran")
			o := superviseApart(t, supervision{
				Argv: []string{"bash", "-c", ": > " + marker}, Dir: "/", NoNewPrivs: true, Rules: r, Denied: c.denied, DeniedIoctl: c.ioctl,
			}, nobody(t)).Outcome
			unavailable := c.message != "" && (r == programs || r == paths && c.paths)
			if unavailable != (o.Reason == result.IsolationUnavailable) || unavailable && !strings.Contains(o.Message, c.message) {
				t.Errorf("without %s and with rules %+v: %s", name, r, describe(o))
			}
			if _, err := os.Stat(marker); (err == nil) == unavailable {
				t.Errorf("without %s and with rules %+v it ran: %v", name, r, err == nil)
			}
			os.Remove(marker)
		}
	}
}

// Each does what its program does to start others, with nothing else listed.
func TestListedProgramsFindTheirHelpers(t *testing.T) {
	for name, c := range map[string]struct {
		allowed []string
		script  string
	}{
		"git": {[]string{"git"}, `git init -q r && cd r && echo a > a && git add a && git -c user.name=a -c user.email=a@example.com commit -qm a &&
git clone -q . ../c && git gc -q && git stash list && git submodule status && cd ../c && git pull -q && git rebase -q && git log --oneline >/dev/null && git fsck`},
		"gcc":     {[]string{"gcc"}, `echo 'int main(void){return 0;}' > m.c && gcc -o m m.c && gcc -O2 -flto -o m m.c`},
		"cc":      {[]string{"cc"}, `echo 'int main(void){return 0;}' > m.c && cc -c m.c && cc -o m m.o`},
		"g++":     {[]string{"g++"}, `echo 'int main(){return 0;}' > m.cc && g++ -o m m.cc`},
		"make":    {[]string{"make", "touch"}, `printf 'a:\n\ttouch a && : done\nb:\n\ttouch b\n' > Makefile && make -s a b`},
		"python3": {[]string{"python3"}, `python3 -c 'import os, subprocess, sys; sys.exit(os.system("exit 0") + subprocess.call([sys.executable, "-c", ""]))'`},
		"perl":    {[]string{"perl"}, `perl -e 'exit system("exit 0 | :")'`},
		"awk":     {[]string{"awk"}, `awk 'BEGIN { exit system("exit 0") }'`},
		"node":    {[]string{"node"}, `node -e 'process.exit(require("child_process").spawnSync("exit 0", {shell: true}).status)'`},
		"npm":     {[]string{"npm"}, `npm --version >/dev/null`},
		"tar":     {[]string{"tar"}, `echo a > a && tar czf a.tgz a && tar xzf a.tgz`},
		"ldd":     {[]string{"ldd"}, `:`},
		"sort":    {[]string{"sort"}, `echo a | sort`},
	} {
		t.Run(name, func(t *testing.T) {
			needs(t, name)
			_, work := worlds(t)
			if strings.HasPrefix(real(t, name), "/root/") {
				t.Skip("it isn't for every user")
			}
			o := superviseApart(t, supervision{
				Argv: []string{"bash", "-c", "cd " + work + " && " + c.script}, Dir: "/", NoNewPrivs: true,
				Env:   []string{"PATH=" + testPath, "HOME=" + work, "TMPDIR=" + work},
				Rules: &rules.Rules{Policy: "agents", WritePaths: []string{work}, Programs: &rules.Programs{Allowed: c.allowed, Own: "bash"}},
			}, nobody(t)).Outcome
			if o.Reason != result.Completed || len(o.Refused) > 0 {
				t.Errorf("%s\nrefused %+v", describe(o), o.Refused)
			}
		})
	}
}

// A domain that lists no programs is entered by a thread of this process. It must end.
func TestNoThreadOfTheSupervisorStaysInADomain(t *testing.T) {
	ownRules(t)
	dir := publicDir(t)
	var running sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		// Work for other threads, so that some are started meanwhile.
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = os.ReadFile("/proc/self/status")
				}
			}
		})
	}
	for range 30 {
		cmd := bash("echo x >" + dir + "/file")
		cmd.Rules = &rules.Rules{WritePaths: []string{}}
		o := runIt(t, t.Context(), cmd)
		if o.Reason == result.IsolationUnavailable {
			t.Skip(o.Message)
		}
		if o.Reason != result.NonZeroExit || !strings.Contains(text(o.Stderr), "Permission denied") || !o.Isolation.Writes {
			t.Fatal(describe(o))
		}
	}
	close(stop)
	running.Wait()
	for _, id := range proc.Threads() {
		status, err := os.ReadFile("/proc/self/task/" + itoa(id) + "/status")
		if err == nil && strings.Contains(string(status), "NoNewPrivs:\t1") {
			t.Errorf("thread %d is in a domain", id)
		}
	}
}
