package sandbox

import (
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// A tracer stops its child at the entry of connect and at its end, and changes the address each time.
const tracedConnect = `
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
static struct sockaddr_in listed = {AF_INET}, other = {AF_INET};
int main(int argc, char **argv) {
	listed.sin_port = htons(atoi(argv[1])); other.sin_port = htons(atoi(argv[2]));
	listed.sin_addr.s_addr = other.sin_addr.s_addr = htonl(0x7f000001);
	int tries = 0, changed = 0;
	pid_t child = fork();
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		for (int i = 0; i < 100; i++) {
			int fd = socket(AF_INET, SOCK_STREAM, 0);
			connect(fd, (struct sockaddr *)&listed, sizeof listed);
			close(fd);
		}
		_exit(0);
	}
	for (;;) {
		int status;
		waitpid(child, &status, 0);
		if (WIFEXITED(status)) break;
		struct user_regs_struct r;
		ptrace(PTRACE_GETREGS, child, 0, &r);
		if (r.orig_rax == SYS_connect) {
			if (++tries % 4 < 2) { // half of them keep the address at the entry
				r.rsi = (long)&other; changed++;
				ptrace(PTRACE_SETREGS, child, 0, &r);
			}
			ptrace(PTRACE_POKEDATA, child, &listed, *(long *)(tries % 3 ? &listed : &other));
		}
		ptrace(PTRACE_SYSCALL, child, 0, 0);
	}
	printf("%d\n", changed > 50);
}`

func TestATracedChildReachesNothingElse(t *testing.T) {
	inEveryWay(t, connected, func(t *testing.T) {
		if runtime.GOARCH != "amd64" {
			t.Skip("the tracer knows the registers of amd64 only")
		}
		listed, other := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
		argv := []string{compile(t, "gcc", tracedConnect), listed.port(), other.port()}
		out, o := (&command{network: &sockets.Network{Connections: allow1(listed.address())}, argv: argv}).run(t)
		if out != "1\n" || other.accepted.Load() != 0 || listed.accepted.Load() == 0 || len(o.Denied) != 1 {
			t.Errorf("got %s, %d connections escaped, %d were let through, denied %+v", out, other.accepted.Load(), listed.accepted.Load(), o.Denied)
		}
	})
}

// The first thread has ended: its descriptors can't be listed any more, those of the process are still there.
const withoutFirstThread = `
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
static int port, ended[2];
static void *work(void *first) {
	char c;
	pthread_join(*(pthread_t *)first, 0);
	struct sockaddr_in to = {AF_INET, htons(port), {htonl(0x7f000001)}};
	int kept = socket(AF_INET, SOCK_STREAM, 0);
	for (int i = 0; i < 500; i++) close(socket(AF_INET, SOCK_STREAM, 0));
	printf("%d\n", connect(kept, (void *)&to, sizeof to));
	fflush(stdout);
	_exit(0);
}
int main(int argc, char **argv) {
	static pthread_t first, t;
	port = atoi(argv[1]); first = pthread_self();
	pthread_create(&t, 0, work, &first);
	pthread_exit(0);
}`

func TestSocketsOfAProcessWithoutItsFirstThreadAreKept(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	argv := []string{compile(t, "gcc", withoutFirstThread), s.port()}
	if out, _ := (&command{network: &sockets.Network{Connections: allow1(s.address())}, argv: argv}).run(t); out != "0\n" {
		t.Errorf("got %s", out)
	}
}

// With TCP_FASTOPEN_CONNECT the connection is made by the first write, to the address that was connected to. From the
// second on, the data is in the first packet.
func TestADeferredConnectionGoesWhereItWasLetThrough(t *testing.T) {
	out := string(inItsOwnNetwork(t, "fast-open-world", programPath(t, "python3"), "-c", pythonPrelude+`
def listen(p): l = socket.socket(); l.setsockopt(6, socket.TCP_FASTOPEN, 5); l.bind(("127.0.0.1", p)); l.listen(9); return l
A = listen(7); B = listen(8); B.setblocking(False); other = ("127.0.0.1", 8)
for i in range(3):
    s = socket.socket(); s.setsockopt(6, 30, 1); code(s.connect, ("127.0.0.1", 7)); print(code(s.sendto, b"%d" % i, 0, other), code(s.connect, other), end=" ")
    a, _ = A.accept(); print(a.recv(9), code(B.accept), s.getsockopt(6, 11, 104)[5] & 32, libc.connect(s.fileno(), bytes(16), 16), code(s.sendto, b"x", 0, other), code(B.accept))`))
	want := "1 EISCONN b'0' EAGAIN 0 -1 1 EAGAIN\n1 EISCONN b'1' EAGAIN 32 -1 1 EAGAIN\n1 EISCONN b'2' EAGAIN 32 -1 1 EAGAIN"
	if out != want {
		t.Errorf("got\n%s", out)
	}
}

// musl's resolver asks by UDP only, and compares where the answer comes from. It reads the address in /etc/resolv.conf,
// so this test needs a file system of its own.
func TestMuslResolvesNames(t *testing.T) {
	path := compile(t, "musl-gcc", `
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
int main(int argc, char **argv) {
	struct addrinfo *all, hints = {.ai_socktype = SOCK_STREAM};
	if (getaddrinfo("www.example.com", "80", &hints, &all)) { puts("no address"); return 1; }
	for (; all; all = all->ai_next) puts(inet_ntoa(((struct sockaddr_in *)all->ai_addr)->sin_addr));
}`, "-static")
	out := string(inItsOwnNetwork(t, "musl-world", path))
	if out != "192.0.2.80" {
		t.Errorf("got %s", out)
	}
}

// muslWorld has a nameserver of its own.
func muslWorld(args []string) {
	ip("link set lo up")
	bindOverResolvConf("nameserver 127.0.0.1\n")
	n := &sockets.Network{Connections: allow1(), Nameservers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}, Datagrams: &echo{answer: answerName}}
	runNetwork(args, nil, n)
}

// answerName gives one IPv4 address for every name.
func answerName(query []byte, reply func([]byte)) {
	const header = 12
	end := header + strings.IndexByte(string(query[header:]), 0) + 5
	answer := append([]byte(nil), query[:end]...)
	answer[2], answer[3] = 0x81, 0x80
	if query[end-3] == 1 { // type A
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
		answer = append(answer, net.IPv4(192, 0, 2, 80).To4()...)
	}
	reply(answer)
}
