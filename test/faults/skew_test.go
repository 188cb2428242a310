package faults

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process's wall clock can't be set apart from the machine's: no namespace covers it, and a static binary loads
// no library that could lie to it. But it asks the kernel's code that is mapped into every process, the vDSO, and
// the pages of that can be written to as a debugger does for its breakpoints. They become the process's own then.
// Code that adds an offset to the wall clock, and to no other, takes the place of the kernel's.

// atSysinfoEHDR is the entry of the auxiliary vector that says where the vDSO is.
const atSysinfoEHDR = 33

// skew sets the wall clock of a running process off by whole seconds. The process and what it starts later by
// fork have it; a program that is executed anew has not.
func skew(t *testing.T, process int, offset time.Duration) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skipf("the code that sets a process's clock is written for amd64, this is %s", runtime.GOARCH)
	}
	if err := skewClock(process, offset); err != nil {
		t.Fatalf("set the clock of process %d: %v", process, err)
	}
}

func skewClock(process int, offset time.Duration) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", process), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	address, size, err := clockCode(memory, process)
	if err != nil {
		return err
	}
	code := clockPlus(offset)
	if len(code) > size {
		return fmt.Errorf("the kernel's code has %d bytes, which is less than the %d to put there", size, len(code))
	}
	return whileStopped(process, address, size, func() error {
		_, err := memory.WriteAt(code, int64(address))
		return err
	})
}

// clockCode finds the function that programs ask for the time.
func clockCode(memory io.ReaderAt, process int) (address uint64, size int, err error) {
	vector, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", process))
	if err != nil {
		return 0, 0, err
	}
	var base uint64
	for ; len(vector) >= 16; vector = vector[16:] {
		if binary.LittleEndian.Uint64(vector) == atSysinfoEHDR {
			base = binary.LittleEndian.Uint64(vector[8:])
		}
	}
	image := make([]byte, 2*os.Getpagesize())
	if n, err := memory.ReadAt(image, int64(base)); err != nil && n < os.Getpagesize() {
		return 0, 0, fmt.Errorf("read the vDSO: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, 0, fmt.Errorf("parse the vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, 0, fmt.Errorf("read the vDSO's symbols: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return base + s.Value, int(s.Size), nil
		}
	}
	return 0, 0, errors.New("the vDSO has no __vdso_clock_gettime")
}

// clockPlus is clock_gettime as a system call, and an addition to the seconds of CLOCK_REALTIME, which is clock 0.
func clockPlus(offset time.Duration) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 0x07, // jne over the addition
		0x48, 0x81, 0x06, // add qword [rsi], the next four bytes
	}
	code = binary.LittleEndian.AppendUint32(code, uint32(int32(offset/time.Second)))
	return append(code, 0xc3) // ret
}

// whileStopped does it while no thread of the process is inside of the code.
func whileStopped(process int, address uint64, size int, do func() error) error {
	for range 100 {
		if err := syscall.Kill(process, syscall.SIGSTOP); err != nil {
			return err
		}
		free := awaitStopped(process) && !anyInside(process, address, size)
		var err error
		if free {
			err = do()
		}
		if again := syscall.Kill(process, syscall.SIGCONT); again != nil || err != nil {
			return errors.Join(err, again)
		}
		if free {
			return nil
		}
	}
	return errors.New("its threads are always inside of the code that is to be replaced")
}

func awaitStopped(process int) bool {
	for range 1000 {
		if allStopped(process) {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

func allStopped(process int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", process))
	for _, thread := range threads {
		line, err := os.ReadFile(thread)
		// The state follows the program's name, which may hold anything.
		end := bytes.LastIndexByte(line, ')')
		if err != nil || end < 0 || !bytes.HasPrefix(line[end:], []byte(") T")) {
			return false
		}
	}
	return len(threads) > 0
}

// anyInside looks where each thread will go on.
func anyInside(process int, address uint64, size int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", process))
	for _, thread := range threads {
		line, err := os.ReadFile(thread)
		fields := strings.Fields(string(line))
		if err != nil || len(fields) == 0 {
			return true
		}
		at, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		if err != nil || at >= address && at < address+uint64(size) {
			return true
		}
	}
	return false
}

// envClockChild makes the test's binary a process that says the time whenever it is asked.
const envClockChild = "TOOLCALL_FAULTS_CLOCK_CHILD"

func tellTime() {
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		fmt.Println(time.Now().UnixNano(), time.Since(started).Nanoseconds())
	}
}

var started = time.Now()

// The wall clock is off, another process's isn't, and what a process measures goes on as before.
func TestSkewSetsTheWallClockOfOneProcess(t *testing.T) {
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), envClockChild+"=1")
		in, err := child.StdinPipe()
		must(t, err)
		out, err := child.StdoutPipe()
		must(t, err)
		must(t, child.Start())
		answers := bufio.NewReader(out)
		ask := func() (wall time.Time, since time.Duration) {
			fmt.Fprintln(in)
			var nanos, measured int64
			if _, err := fmt.Fscan(answers, &nanos, &measured); err != nil {
				t.Fatal(err)
			}
			return time.Unix(0, nanos), time.Duration(measured)
		}
		wall, before := ask()
		if off := time.Until(wall).Abs(); off > time.Minute {
			t.Fatalf("the child's clock is %s off before anything was done to it", off)
		}
		skew(t, child.Process.Pid, offset)
		wall, after := ask()
		if off := (time.Until(wall) - offset).Abs(); off > time.Minute {
			t.Errorf("the child's clock is %s off, not %s", time.Until(wall), offset)
		}
		if passed := after - before; passed < 0 || passed > time.Minute {
			t.Errorf("the child measured %s meanwhile", passed)
		}
		must(t, in.Close())
		must(t, child.Wait())
	}
}
