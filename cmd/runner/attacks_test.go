package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// pod is a session's pod with the runner as its first process: without capabilities, with a file system of its own, and
// with the runner's file where no call may write. Where a wall fails, what the attacks write is lost with the pod.
type pod struct {
	*sessionOperator
	*process
	support *rules.Support
	// attacks is the attacking program in the directory bin, home the home directory.
	attacks, bin, home string
}

// users are those that pods' commands run as.
var users = map[string][]string{"root without capabilities": nil, "a plain user": {"--reuid=65534", "--regid=65534", "--clear-groups"}}

// onPods runs a test in a pod of each user.
func onPods(t *testing.T, concurrent int, groups []string, test func(t *testing.T, p *pod)) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	for _, program := range []string{"gcc", "unshare", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s isn't installed", program)
		}
	}
	for user, options := range users {
		t.Run(user, func(t *testing.T) {
			p := startPod(t, concurrent, groups, options)
			if p.support.LandlockABI < rules.ABIScopes {
				t.Skip("signals can't be held here")
			}
			test(t, p)
			p.end()
		})
	}
}

func startPod(t *testing.T, concurrent int, groups, user []string) *pod {
	t.Helper()
	// Not in /tmp: there, calls may write.
	bin := public(t, "/var/tmp")
	attacks, runner := filepath.Join(bin, "attacks"), filepath.Join(bin, "runner")
	if out, err := exec.Command("gcc", "-O1", "-w", "-o", attacks, "testdata/attacks.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("cp", os.Args[0], runner).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := newSessionOperator(t)
	dir := public(t, "/tmp")
	home := filepath.Join(dir, "home")
	for _, path := range []string{home, filepath.Join(dir, "work")} {
		if err := os.Mkdir(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs("testdata/pod.sh")
	if err != nil {
		t.Fatal(err)
	}
	argv := append(groups, "unshare", "--pid", "--fork", "--mount", "--kill-child", "sh", script, public(t, "/var/tmp"), dir, bin,
		"setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")
	argv = append(append(argv, user...), runner)
	proc := newProcess(t, &operator{identity: o.identity, address: o.listener.Addr().String()}, filepath.Join(dir, "work"), argv, "HOME="+home)
	proc.start()
	p := &pod{sessionOperator: o, process: proc, attacks: attacks, home: home, bin: bin}
	p.support = o.begin(concurrent)
	return p
}

// public is a directory that everybody may write to, and reach.
func public(t *testing.T, in string) string {
	t.Helper()
	dir, err := os.MkdirTemp(in, "toolcall-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a call to its end.
func (p *pod) run(uid, script string) *wire.Result {
	p.process.t.Helper()
	p.send(p.call(uid, script))
	return p.await(uid)
}

func (p *pod) await(uid string) *wire.Result {
	p.process.t.Helper()
	r := p.result(uid)
	p.send(acked(uid))
	return r
}

// open starts a call that says a line when it is there.
func (p *pod) open(uid, attack string) string {
	p.process.t.Helper()
	fifo := p.fifo(uid)
	if err := os.Chmod(fifo, 0o666); err != nil {
		p.process.t.Fatal(err)
	}
	p.send(p.call(uid, "exec "+p.attacks+" "+attack+" "+fifo))
	return p.process.read(fifo)
}

// stop stops a call.
func (p *pod) stop(uid string) *wire.Result {
	p.process.t.Helper()
	p.send(&wire.Message{Stop: &wire.Stop{CallUID: uid, Reason: result.CancelRequested}})
	return p.await(uid)
}

func (p *pod) end() {
	p.process.t.Helper()
	p.send(&wire.Message{End: &wire.End{Reason: "EndRequested"}})
	if code := p.exit(); code != 0 {
		p.process.t.Errorf("the runner exited with %d: %s", code, p.stderr.String())
	}
}

// expect checks what a call said.
func (p *pod) expect(what string, r *wire.Result, want string) {
	p.process.t.Helper()
	if got := stdout(r); got != want || r.Outcome.Reason != result.Completed {
		p.process.t.Errorf("%s: got %q, %q, %s: %s; want %q", what, got, r.Outcome.Stderr.Head, r.Outcome.Reason, r.Outcome.Message, want)
	}
}

// waitingStages makes two shims wait with a stage each: they have run calls at the same time whose programs were listed.
func (p *pod) waitingStages() {
	p.process.t.Helper()
	go1, go2 := p.fifo("go1"), p.fifo("go2")
	for _, fifo := range []string{go1, go2} {
		if err := os.Chmod(fifo, 0o666); err != nil {
			p.process.t.Fatal(err)
		}
	}
	for _, c := range [][3]string{{"w1", "echo >" + go1, "read x <" + go2}, {"w2", "read x <" + go1, "echo >" + go2}} {
		m := p.call(c[0], fmt.Sprintf("%s; %s", c[1], c[2]))
		m.Assign.Rules = &rules.Rules{Programs: &rules.Programs{Own: "sh"}}
		p.send(m)
	}
	ended := map[string]bool{}
	for len(ended) < 2 {
		m, err := p.sessionOperator.read()
		if err != nil {
			p.process.t.Fatal(err)
		}
		if m.Result != nil {
			ended[m.Result.CallUID] = true
			if m.Result.Outcome.Reason != result.Completed {
				p.process.t.Fatalf("got %+v", m.Result.Outcome)
			}
			p.send(acked(m.Result.CallUID))
		}
	}
	for p.stages() < 2 {
		time.Sleep(time.Millisecond)
	}
}

// stages counts the stages in the pod.
func (p *pod) stages() (n int) {
	for pid := range proc.All() {
		if cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(cmdline) == "toolcall-stage\x00" && slices.Contains(ancestors(pid), p.Process.Pid) {
			n++
		}
	}
	return n
}

// ancestors are a process's parent, that one's, and so on.
func ancestors(pid int) (all []int) {
	for pid > 1 {
		at, ok := proc.Read(pid)
		if !ok {
			return all
		}
		pid = at.Parent
		all = append(all, pid)
	}
	return all
}

func TestAnAttackingCallReachesNoOtherProcess(t *testing.T) {
	onPods(t, 4, nil, func(t *testing.T, p *pod) {
		p.open("v1", "victim")
		p.open("v2", "victim")
		p.waitingStages()
		r := p.run("attacker", "exec "+p.attacks+" everybody")
		// The runner, the shims and commands of two victims, its own shim and a waiting one with its stage, and two sockets.
		var n, stages int
		if _, err := fmt.Sscanf(stdout(r), "attacked %d, %d stages\n", &n, &stages); err != nil || n < 9 || stages < 1 || strings.Count(stdout(r), "\n") != 1 {
			t.Errorf("got %s%s, %s: %s", stdout(r), r.Outcome.Stderr.Head, r.Outcome.Reason, r.Outcome.Message)
		}
		if i := r.Outcome.Isolation; i == nil || !i.Signals || !i.Writes || i.Network != result.NetworkPod || i.Self == nil || i.Self.Seccomp != rules.SeccompDisabled {
			t.Errorf("isolation: %+v", i)
		}
		p.expect("the next call", p.run("next", "echo fine"), "fine\n")
		for _, uid := range []string{"v1", "v2"} {
			if r := p.stop(uid); r.Outcome.Reason != result.CancelRequested || r.Outcome.Signal != "SIGTERM" {
				t.Errorf("%s: got %+v", uid, r.Outcome)
			}
		}
	})
}

// Where nothing holds them, the attacks work: otherwise the test above would show nothing.
func TestTheAttacksReachWhatNothingHolds(t *testing.T) {
	onPods(t, 1, nil, func(t *testing.T, p *pod) {
		if err := os.Chmod(p.fifo("up"), 0o666); err != nil {
			t.Fatal(err)
		}
		// As the runner is started, and in its place.
		argv := slices.Clone(p.Args)
		argv[slices.Index(argv, "sh")+2] = public(t, "/var/tmp")
		argv = append(argv[:len(argv)-1], "sh", "-c", `{ "$0" victim up & } && read x <up && exec "$0" everybody`, p.attacks)
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{
			"traced", "memory read", "memory written", "signalled", "stopped", "signalled by a descriptor", "descriptor taken", "limit set", "priority set",
			"scheduler set", "disk priority set", "pages moved", "environ", "mem", "maps", "root", "cwd", "exe", "fd/0", "connected to", "oom_score_adj written",
		} {
			if !strings.Contains(string(out), what+"\n") {
				t.Errorf("not %s", what)
			}
		}
	})
}

func TestNothingOfACallOutlivesIt(t *testing.T) {
	onPods(t, 2, nil, func(t *testing.T, p *pod) {
		for _, uid := range []string{"o1", "o2"} {
			p.open(uid, "outlive")
			p.await(uid)
			p.expect("what is left", p.run("look-"+uid, `for f in /proc/[0-9]*/cmdline; do tr '\0' '\n' <$f 2>/dev/null | head -1 | grep -a survivor; done; true`), "")
		}
	})
}

// What carries over from call to call is files. None of them is the runner's, or is asked by it.
func TestFilesThatACallLeavesDoNotChangeTheNext(t *testing.T) {
	onPods(t, 2, nil, func(t *testing.T, p *pod) {
		runner := p.Args[len(p.Args)-1]
		leave := fmt.Sprintf(`
for dir in /tmp . "$HOME" /dev/shm; do
  for name in toolcall-shim toolcall-stage runner exe sh true; do printf '#!/bin/sh\necho "$0" >>%[1]s/ran\n' >$dir/$name; chmod 755 $dir/$name; done
done
for file in .profile .bashrc .bash_profile .env .pam_environment; do echo 'export LD_PRELOAD=/tmp/evil.so' >$HOME/$file; done
cp %[3]s /tmp/evil.so
for file in %[2]s /proc/$PPID/exe /etc/ld.so.preload /etc/profile /etc/environment /usr/lib/evil.so /dev/termination-log; do
  (echo x >>$file) 2>/dev/null && echo "wrote $file"
done
rm -f %[2]s 2>/dev/null && echo removed
mv -f /tmp/runner %[2]s 2>/dev/null && echo replaced
ln -f /tmp/runner %[2]s.new 2>/dev/null && echo linked
echo left`, p.Dir, runner, p.attacks)
		p.expect("the call that leaves them", p.run("leave", leave), "left\n")
		p.expect("the next", p.run("next", `echo ${LD_PRELOAD-none}; grep -c evil /proc/self/maps; true; cat ran 2>/dev/null; true`), "none\n0\n")
		// What waits when it is opened: for itself, and not for the runner.
		p.expect("one that leaves FIFOs", p.run("fifo", `rm -r "$HOME"; mkfifo "$HOME" /tmp/toolcall-fifo-$$ input; rm /tmp/toolcall-fifo-*; echo left`), "left\n")
		reader := p.call("reader", "cat input")
		reader.Assign.TimeoutMilliseconds = 300
		p.send(reader)
		p.expect("one beside a reader", p.run("beside", "echo fine"), "fine\n")
		if r := p.await("reader"); r.Outcome.Reason != result.TimedOut {
			t.Errorf("a reader: %+v", r.Outcome)
		}
		in := p.call("in", "true")
		in.Assign.Environment.WorkingDir = "input"
		p.send(in)
		if r := p.await("in"); r.Outcome.Reason != result.WorkingDirNotFound {
			t.Errorf("in a FIFO: %+v", r.Outcome)
		}
	})
}

func TestACallWritesBelowTheSessionsDirectoriesOnly(t *testing.T) {
	onPods(t, 1, nil, func(t *testing.T, p *pod) {
		// Everybody may write there, if nothing else holds it.
		outside := p.bin
		try := fmt.Sprintf(`for dir in /tmp . /dev/shm "$HOME" %s /etc /usr /proc/sys/kernel /var/tmp; do (echo x >$dir/x-$$ && rm $dir/x-$$) 2>/dev/null && echo wrote; done; echo x >/dev/null; echo x >/dev/stderr; echo done`, outside)
		p.expect("a call", p.run("c1", try), strings.Repeat("wrote\n", 4)+"done\n")
		m := p.call("c2", try)
		m.Assign.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: "HOME", Value: outside}}}}
		p.send(m)
		p.expect("a call that sets its home", p.await("c2"), strings.Repeat("wrote\n", 3)+"done\n")
		m = p.call("c3", try)
		m.Assign.Environment.AllowedPaths = append(m.Assign.Environment.AllowedPaths, outside)
		m.Assign.Environment.WorkingDir = outside
		p.send(m)
		p.expect("a call in a directory that the environment allows", p.await("c3"), strings.Repeat("wrote\n", 5)+"done\n")
		p.expect("the next", p.run("c4", fmt.Sprintf("(echo x >%s/x) 2>/dev/null || echo refused", outside)), "refused\n")
		// A home that a call has made a link.
		p.expect("a link", p.run("c5", fmt.Sprintf(`rm -r "$HOME"; ln -s %s "$HOME"; echo made`, outside)), "made\n")
		p.expect("through a link", p.run("c6", `(echo x >"$HOME/x") 2>/dev/null || echo refused`), "refused\n")
	})
}

// limited makes control groups of version 1, whose limits hold for a pod.
func limited(t *testing.T, limits map[string]string) []string {
	t.Helper()
	enter := ""
	for file, value := range limits {
		controller, _, _ := strings.Cut(file, ".")
		dir := filepath.Join("/sys/fs/cgroup", controller, groupOf(t, controller), fmt.Sprintf("toolcall-test-%d", os.Getpid()))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Skip("can't make a control group: ", err)
		}
		t.Cleanup(func() { os.Remove(dir) })
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
			t.Skip("can't limit a control group: ", err)
		}
		enter += "echo $$ >" + dir + "/cgroup.procs && "
	}
	return []string{"sh", "-c", enter + `exec "$0" "$@"`}
}

func groupOf(t *testing.T, controller string) string {
	t.Helper()
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && strings.Contains(","+fields[1]+",", ","+controller+",") {
			return fields[2]
		}
	}
	t.Skipf("there is no control group of version 1 for %s", controller)
	return ""
}

func TestACallThatTakesAllProcessesEndsAlone(t *testing.T) {
	onPods(t, 2, limited(t, map[string]string{"pids.max": "160"}), func(t *testing.T, p *pod) {
		p.open("bomb", "bomb")
		for i := range 3 {
			uid := fmt.Sprintf("beside-%d", i)
			m := p.call(uid, "echo fine")
			m.Assign.Argv = []string{"true"}
			p.send(m)
			// It needs a process, and its shim may need a thread. Without one the command isn't started, or the shim ends and
			// nobody knows whether it was. The call says so, and ends; the runner and the others go on.
			switch o := p.await(uid).Outcome; {
			case o.Reason == result.Completed, !o.Started && o.Reason == result.InvalidEnvironment:
			case o.Reason == result.Signaled && strings.Contains(o.Message, "the process that supervised it"):
			default:
				t.Errorf("beside it: %+v", o)
			}
		}
		if r := p.stop("bomb"); r.Outcome.Reason != result.CancelRequested {
			t.Errorf("got %+v", r.Outcome)
		}
		p.expect("the next call", p.run("next", "echo fine"), "fine\n")
	})
}

func TestTenThousandDescriptorsAreTheCallsOwn(t *testing.T) {
	onPods(t, 2, nil, func(t *testing.T, p *pod) {
		p.expect("a call", p.run("c1", p.attacks+" descriptors"), "opened 10000\n")
		p.expect("the next call", p.run("c2", "ls /proc/self/fd | wc -l"), "4\n")
	})
}

func TestACallThatTakesAllMemoryEndsAlone(t *testing.T) {
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip("python3 isn't installed")
	}
	onPods(t, 2, limited(t, map[string]string{"memory.limit_in_bytes": "402653184"}), func(t *testing.T, p *pod) {
		p.open("small", "victim")
		r := p.run("hog", `exec /usr/bin/python3 -c 'import time
b = []
while True:
    b.append(b"x" * (2 << 20))
    time.sleep(0.01)'`)
		if r.Outcome.Reason != result.OOMKilled || r.Outcome.Signal != "SIGKILL" {
			t.Errorf("got %+v", r.Outcome)
		}
		p.expect("the next call", p.run("next", "echo fine"), "fine\n")
		if r := p.stop("small"); r.Outcome.Reason != result.CancelRequested {
			t.Errorf("the small one: %+v", r.Outcome)
		}
	})
}
