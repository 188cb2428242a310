package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// What demand takes of each kind.
const (
	demandedCPU    = 700 * time.Millisecond
	demandedMemory = 256 << 20
	demandedBytes  = 24 << 20
)

// demandHelper takes much of one kind.
func demandHelper(args []string) {
	switch args[0] {
	case "cpu":
		for processorTime(os.Getpid()) < demandedCPU {
			continue
		}
	case "memory":
		memory := make([]byte, demandedMemory)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
	case "storage":
		if err := useStorage(filepath.Join(args[1], fmt.Sprint(os.Getpid()))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// useStorage writes a file and reads it from storage.
func useStorage(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer os.Remove(name)
	defer f.Close()
	data := make([]byte, demandedBytes)
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	_, err = f.ReadAt(data, 0)
	return err
}

// timeHelper does what time(1) does: it runs a helper and says what the kernel says of that.
func timeHelper(args []string) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helperVariable+"=demand")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(cmd.ProcessState.SysUsage())
}

// In every way, what a call took is within 5 % of what its own parent finds.
func TestUsageIsWhatTheKernelCounts(t *testing.T) {
	self := publicSelf(t)
	_, work := worlds(t)
	takes := func(t *testing.T, held *rules.Rules) {
		for _, kind := range []string{"cpu", "memory", "storage"} {
			o := superviseApart(t, supervision{
				Argv: []string{self, kind, work}, Dir: "/", NoNewPrivs: true, Rules: held,
				Env: []string{"PATH=" + testPath, helperVariable + "=time"},
			}, nobody(t)).Outcome
			var said unix.Rusage
			if err := json.Unmarshal(o.Stdout.Head, &said); err != nil || o.Reason != result.Completed || o.Usage == nil {
				t.Fatalf("%s: %s, %v: %s", kind, describe(o), err, o.Stderr.Head)
			}
			u := o.Usage
			within(t, kind+" ms", u.CPUMilliseconds, cpuTime(&said).Milliseconds(), 30)
			within(t, kind+" read", u.ReadBytes, said.Inblock*blockSize, 1<<20)
			within(t, kind+" written", u.WrittenBytes, said.Oublock*blockSize, 1<<16)
			switch kind {
			case "cpu":
				within(t, "demanded ms", u.CPUMilliseconds, demandedCPU.Milliseconds(), 60)
			case "memory":
				within(t, "memory", u.MaxRSSBytes, said.Maxrss<<10, 0)
				within(t, "demanded memory", u.MaxRSSBytes, demandedMemory, demandedMemory/4)
			}
		}
	}
	t.Run("without rules", func(t *testing.T) { takes(t, nil) })
	programs := &rules.Programs{Allowed: []string{"/"}, AllowWritable: true}
	inEveryWay(t, &rules.Rules{Programs: programs}, func(t *testing.T, _ rules.Way) { takes(t, &rules.Rules{Programs: programs}) })
}

// within checks a number that may be 5 %, and a little that belongs to the parent, off.
func within(t *testing.T, name string, got *int64, want, beside int64) {
	t.Helper()
	if got == nil || *got < want-want/20 || *got > want+want/20+beside {
		t.Errorf("%s: got %v, want %d", name, shownNumber(got), want)
	}
}

func shownNumber(n *int64) string {
	if n == nil {
		return "nothing"
	}
	return fmt.Sprint(*n)
}

// The kernel counts the memory of this process as that of a command that takes less.
func TestTheMemoryOfASmallCommandIsNotKnown(t *testing.T) {
	o := runIt(t, t.Context(), program("true"))
	if u := o.Usage; u == nil || u.CPUMilliseconds == nil || *u.CPUMilliseconds > 1000 || u.MaxRSSBytes != nil {
		t.Errorf("got %+v", o.Usage)
	}
	if o := runIt(t, t.Context(), program("no-such-program")); o.Usage != nil {
		t.Errorf("nothing ran, and took %+v", o.Usage)
	}
	cmd := program("true")
	cmd.Beside = true
	if o := runIt(t, t.Context(), cmd); o.Usage.PeakProcesses != nil {
		t.Errorf("%d processes of several commands are said to be one's", *o.Usage.PeakProcesses)
	}
}

func TestWhereTasksAreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"version 2":     {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/pids.peak": "17\n"}, "17"},
		"version 1":     {map[string]string{"proc/self/cgroup": "4:pids:/k\n0::/\n", "sys/fs/cgroup/pids/pids.peak": "18\n"}, "18"},
		"an old kernel": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/pids.current": "17\n"}, "nothing"},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := shownNumber(peakTasks(root)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
