package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

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
		argv = append(argv[:len(argv)-1], "sh", "-c", `{ "$0" victim up || echo "no victim: $?" >up; } & read x <up && exec "$0" everybody`, p.attacks)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
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
