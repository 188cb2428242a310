package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
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
