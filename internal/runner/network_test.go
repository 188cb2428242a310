package runner

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/result"
)

func python(source string) Command { return program("python3", "-c", source) }

// offline runs a Python program without network; it prints what it finds out.
func offline(t *testing.T, source string) result.Outcome {
	t.Helper()
	needs(t, "python3")
	cmd := python(source)
	cmd.DenyNetwork = true
	cmd.Dir = publicDir(t)
	return runIt(t, t.Context(), cmd)
}

func TestDeniedNetwork(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"every family but Unix is refused": {`
import socket, errno
for family in range(-1, 64):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try:
            s = socket.socket(family, kind)
            print("made", family, s.family == socket.AF_UNIX)
        except PermissionError as e:
            assert e.errno == errno.EACCES, e
        except OSError as e:
            assert family == socket.AF_UNIX, (family, e)
`, "made 1 True\nmade 1 True\nmade 1 True\nmade 1 True\n"},
		"pairs too": {`
import socket, ctypes, os
a, b = socket.socketpair(); a.send(b"hi"); print(b.recv(2))
fds = (ctypes.c_int * 2)()
libc = ctypes.CDLL(None, use_errno=True)
print(libc.socketpair(2, 1, 0, fds), os.strerror(ctypes.get_errno()))
`, "b'hi'\n-1 Permission denied\n"},
		"high bits don't hide the family": {`
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.argtypes = [ctypes.c_long] * 4
number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
for family in (2, 2 | 1 << 32, 10 | 1 << 63 - 1, 2 - (1 << 63)):
    print(libc.syscall(number, family, 1, 0), os.strerror(ctypes.get_errno()))
`, strings.Repeat("-1 Permission denied\n", 4)},
		"io_uring isn't there": {`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
params = ctypes.create_string_buffer(120)
for number in (425, 426, 427):
    print(libc.syscall(number, 8, params, 0, 0, 0, 0), os.strerror(ctypes.get_errno()))
`, strings.Repeat("-1 Function not implemented\n", 3)},
		"children are offline too": {`
import subprocess, sys
for argv in (["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/1"], ["setsid", "bash", "-c", "exec 3<>/dev/udp/127.0.0.1/1"],
             ["perl", "-MIO::Socket::INET", "-e", "IO::Socket::INET->new('127.0.0.1:1') or die \"$!\\n\""]):
    p = subprocess.run(argv, capture_output=True, text=True)
    print(p.returncode != 0, "ermission denied" in p.stderr, "refused" in p.stderr)
`, strings.Repeat("True True False\n", 3)},
		"looking up names fails, and that's all": {`
import socket, urllib.request
try: socket.getaddrinfo("toolcall.invalid", 80)
except socket.gaierror: print("no such name")
try: urllib.request.urlopen("http://127.0.0.1:1/")
except OSError as e: print("ermission denied" in str(e))
`, "no such name\nTrue\n"},
		"Unix sockets work, by path and without": {`
import socket, threading, asyncio
for name in ("./sock", "\0runner-test-abstract"):
    server = socket.socket(socket.AF_UNIX); server.bind(name); server.listen()
    client = socket.socket(socket.AF_UNIX); client.connect(name)
    peer, _ = server.accept(); client.sendall(b"hello"); print(peer.recv(5))
async def main(): return await asyncio.sleep(0, "loop")
print(asyncio.run(main()))
from multiprocessing import Pool
print(Pool(1).map(abs, [-1]))
`, "b'hello'\nb'hello'\nloop\n[1]\n"},
		"the filter can't be taken off": {`
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
print(libc.prctl(39, 0, 0, 0, 0), libc.prctl(38, 0, 0, 0, 0), libc.prctl(22, 0, 0, 0, 0))
try: socket.socket(); print("made")
except PermissionError: print("refused")
`, "1 -1 -1\nrefused\n"},
	} {
		t.Run(name, func(t *testing.T) {
			completed(c.want, "").check(t, offline(t, c.source))
		})
	}
}

// foreignCalls makes i386 calls from a 64-bit process, in code that is put together by hand, and an x32 one.
const foreignCalls = `
import ctypes, mmap, os, socket
class Sys:
    # push rbx; mov eax,edi; mov ebx,esi; mov r8d,edx; mov edx,ecx; mov ecx,r8d; int 0x80; pop rbx; ret
    code = bytes.fromhex("5389f889f34189d089ca4489c1cd805bc3")
    def __init__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        at = libc.mmap(None, 4096, 7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, -1, 0) # MAP_32BIT
        ctypes.memmove(at, self.code, len(self.code))
        self.at = at
        self.call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint)(at)
s = Sys()
args = (ctypes.c_uint * 3).from_address(s.at + 2048)
args[0], args[1], args[2] = 2, 1, 0
if os.fork() == 0:
    print("getpid", s.call(20, 0, 0, 0) == os.getpid())
    print("socket", s.call(359, 2, 1, 0))
    print("socketcall", s.call(102, 1, s.at + 2048, 0))
    print("io_uring", s.call(425, 8, s.at + 2048, 0), flush=True)
    os._exit(0)
ended = os.wait()[1]
if ended:
    print("ended by signal", os.WTERMSIG(ended))
libc = ctypes.CDLL(None, use_errno=True)
print("x32", libc.syscall(41 | 0x40000000, 2, 1, 0), os.strerror(ctypes.get_errno()))
`

func TestForeignABIsAreRefused(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only amd64 runs 32-bit calls from 64-bit programs")
	}
	needs(t, "python3")
	control := runIt(t, t.Context(), python(foreignCalls))
	i386 := "getpid False\nsocket -38\nsocketcall -38\nio_uring -38\n"
	switch got := text(control.Stdout); {
	case strings.HasPrefix(got, "ended by signal 11\n"):
		// Some hypervisors hand no 32-bit call on to the kernel.
		i386 = "ended by signal 11\n"
	case !strings.Contains(got, "getpid True"):
		t.Log("this kernel has no i386 calls: ", describe(control))
	case strings.Contains(got, "socket -"):
		t.Errorf("the control made no socket: %s", describe(control))
	}
	completed(i386+"x32 -1 Function not implemented\n", "").check(t, offline(t, foreignCalls))
}

func TestOurselvesStayOnline(t *testing.T) {
	for range 3 {
		cmd := program("true")
		cmd.DenyNetwork = true
		completed("", "").check(t, runIt(t, t.Context(), cmd))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	// The thread that started a process without network access ends a moment after it.
	await(t, "end of the thread with the filter", func() bool { return threadWithFilter(t) == "" })
}

// threadWithFilter is the status of a live thread of this process with a seccomp filter, if there is one.
func threadWithFilter(t *testing.T) string {
	t.Helper()
	statuses, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(statuses) == 0 {
		t.Fatalf("no threads were found: %v", err)
	}
	for _, path := range statuses {
		data, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(data), "Seccomp:\t0") && !strings.Contains(string(data), "State:\tX") &&
			!strings.Contains(string(data), "State:\tZ") {
			return string(data)
		}
	}
	return ""
}

func TestNetworkIsThereUnlessDenied(t *testing.T) {
	needs(t, "python3")
	completed("2\n", "").check(t, runIt(t, t.Context(), python("import socket; print(int(socket.socket().family))")))
}
