package proc

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	rest := " S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0"
	for name, c := range map[string]struct {
		stat string
		want Process
		ok   bool
	}{
		"plain":               {"12 (cat)" + rest, Process{12, 7, 8, false}, true},
		"a name like a field": {"12 (a) R 1 1 (b)" + rest, Process{12, 7, 8, false}, true},
		"a newline in it":     {"12 (a\n) Z)" + rest, Process{12, 7, 8, false}, true},
		"a zombie":            {"12 (cat) Z" + rest[2:], Process{12, 7, 8, true}, true},
		"empty":               {"", Process{}, false},
		"cut":                 {"12 (cat) S 7", Process{}, false},
		"not numbers":         {"x (cat)" + rest, Process{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := parseStat([]byte(c.stat)); ok != c.ok || got != c.want {
				t.Errorf("got %+v, %v", got, ok)
			}
		})
	}
}

// The child has memory in use, and a child of its own that has more.
func TestTheMemoryOfAProcessAndOfAllBelow(t *testing.T) {
	const mib = 1 << 20
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 isn't installed")
	}
	const script = `
import mmap, os, sys
a = bytearray(20 << 20)
a[:] = b"x" * len(a)
if os.fork() == 0:
    b = mmap.mmap(-1, 30 << 20)
    b.write(b"x" * (30 << 20))
    os.write(1, b"%d" % os.getpid())
    sys.stdin.read()
else:
    os.wait()
`
	cmd := exec.Command("python3", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	said := make([]byte, 16)
	n, err := out.Read(said)
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := strconv.Atoi(string(said[:n]))
	if err != nil {
		t.Fatal(err)
	}
	// The fork shares what it doesn't write.
	if used := Memory(grandchild); used < 30*mib || used > 80*mib {
		t.Errorf("the grandchild uses %d MiB", used/mib)
	}
	below := MemoryBelow([]int{cmd.Process.Pid, os.Getpid()})
	if below[cmd.Process.Pid] != Memory(grandchild) {
		t.Errorf("below the child are %d MiB", below[cmd.Process.Pid]/mib)
	}
	if below[os.Getpid()] < below[cmd.Process.Pid]+20*mib {
		t.Errorf("below this process are %d MiB", below[os.Getpid()]/mib)
	}
	if Memory(0) != 0 || len(MemoryBelow(nil)) != 0 {
		t.Error("there is memory of no process")
	}
}

func TestTheChildrenOfThisProcess(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	found := false
	for _, pid := range Children(Threads()...) {
		p, ok := Read(pid)
		found = found || ok && pid == cmd.Process.Pid && p.Parent == os.Getpid() && p.Group == unix.Getpgrp() && !p.Zombie
	}
	if !found {
		t.Error("the child isn't among the children")
	}
}
