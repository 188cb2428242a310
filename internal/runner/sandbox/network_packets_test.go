package sandbox

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

func init() {
	children["packet-world"], children["connect-world"] = packetWorld, connectWorld
	children["far-world"], children["connect-far"], children["musl-world"] = farWorld, connectFar, muslWorld
	children["fast-open-world"] = fastOpenWorld
}

// connectWorld has an interface to another network namespace, with a server. It runs a command that connects there.
func connectWorld([]string) {
	ip("link set lo up", "link add v0 type veth peer name v1")
	own, err := os.Executable()
	if err != nil {
		panic(err)
	}
	far := exec.Command("unshare", "--net", own)
	far.Env = []string{childVariable + "=far-world", "PATH=" + testPath}
	in, err := far.StdinPipe()
	if err != nil {
		panic(err)
	}
	out, err := far.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := far.Start(); err != nil {
		panic(err)
	}
	said := bufio.NewScanner(out)
	said.Scan()
	ip("link set v1 netns "+said.Text(), "link set v0 up", "addr add 192.0.2.1/24 dev v0", "addr add 2001:db8::1/64 dev v0 nodad", "addr add fe80::1/64 dev v0 nodad")
	fmt.Fprintln(in)
	said.Scan() // it listens
	d := &decider{all: true, refused: map[netip.AddrPort]bool{
		netip.MustParseAddrPort("[fe80::2]:9"): true, netip.MustParseAddrPort("[2001:db8::2]:10"): true, netip.MustParseAddrPort("192.0.2.2:10"): true,
	}}
	if err := runGated("connect-far", nil, d); err != nil {
		fmt.Println(err)
	}
	in.Close()
	_ = far.Wait()
}

// fastOpenWorld has fast open for servers too. It runs a program that may connect to port 7 only.
func fastOpenWorld(args []string) {
	ip("link set lo up")
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_fastopen", []byte("3"), 0o644); err != nil {
		panic(err)
	}
	n := &sockets.Network{Connections: allow1(netip.MustParseAddrPort("127.0.0.1:7"))}
	if err := runNetwork(args, []string{"PATH=" + testPath}, n); err != nil {
		fmt.Println(err)
	}
}

// farWorld listens on an interface that it is given.
func farWorld([]string) {
	fmt.Println(os.Getpid())
	bufio.NewScanner(os.Stdin).Scan()
	ip("link set lo up", "link set v1 up", "addr add 192.0.2.2/24 dev v1", "addr add 2001:db8::2/64 dev v1 nodad", "addr add fe80::2/64 dev v1 nodad")
	for _, port := range []string{"9", "10"} {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			panic(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(port))
				c.Close()
			}
		}()
	}
	fmt.Println("listening")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func connectFar([]string) {
	for _, to := range []string{
		"[2001:db8::2]:9", "192.0.2.2:9", "[::ffff:192.0.2.2]:9", "[2001:db8::2]:10", "192.0.2.2:10", "[::ffff:192.0.2.2]:10", "[fe80::2%v0]:9",
	} {
		a := netip.MustParseAddrPort(to)
		family := unix.AF_INET6
		if a.Addr().Is4() {
			family = unix.AF_INET
		}
		s := sockaddr(family, a)
		if a.Addr().Zone() != "" {
			i, _ := net.InterfaceByName(a.Addr().Zone())
			s.(*unix.SockaddrInet6).ZoneId = uint32(i.Index)
		}
		fd := mustSocket(family, unix.SOCK_STREAM)
		err := unix.Connect(fd, s)
		answer := make([]byte, 2)
		if err == nil {
			n, _ := unix.Read(fd, answer)
			answer = answer[:n]
		}
		fmt.Printf("%s: %v %q\n", to, err, bytes.Trim(answer, "\x00"))
	}
}

func ip(lines ...string) {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			fmt.Printf("ip %s: %v: %s\n", line, err, out)
			os.Exit(1)
		}
	}
}

// packetWorld has an interface whose other end it listens to. It runs a command that sends datagrams, and prints whether
// any came out.
func packetWorld(args []string) {
	ip(
		"link set lo up", "link add v0 type veth peer name v1", "link set v0 up", "link set v1 up",
		"addr add 192.0.2.1/24 dev v0", "addr add 2001:db8::1/64 dev v0 nodad",
		// Without a neighbor's address packets would wait.
		"neigh add 192.0.2.2 lladdr 02:00:00:00:00:01 dev v0", "neigh add 2001:db8::2 lladdr 02:00:00:00:00:01 dev v0",
	)
	capture, err := capturePackets("v1")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	targets := []string{"192.0.2.2:9", "[2001:db8::2]:9"}
	if args[0] == "plain" {
		cmd := exec.Command("/proc/self/exe", targets...)
		cmd.Env = []string{childVariable + "=send-datagrams"}
		_ = cmd.Run()
	} else if err := runGated("send-datagrams", targets, &decider{all: true}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	// The last packet is this process's own, so that all others have passed.
	_, _ = unix.SendmsgN(mustSocket(unix.AF_INET, unix.SOCK_DGRAM), []byte("end"), nil, sockaddr(unix.AF_INET, netip.MustParseAddrPort("192.0.2.2:10")), 0)
	udp4, udp6 := countDatagrams(capture)
	fmt.Println("udp4", udp4, "udp6", udp6)
}

func mustSocket(family, kind int) int {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	return fd
}

func capturePackets(name string) (int, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return -1, err
	}
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return -1, err
	}
	timeout := unix.NsecToTimeval(int64(10 * time.Second))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
}

// countDatagrams reads up to the end mark, and reports whether datagrams to port 9 came.
func countDatagrams(capture int) (udp4, udp6 bool) {
	packet := make([]byte, 65536)
	for {
		n, _, err := unix.Recvfrom(capture, packet, 0)
		if err != nil {
			fmt.Println("no end:", err)
			os.Exit(1)
		}
		p := packet[:n]
		const ethernet, ipv4, ipv6 = 14, 20, 40
		switch {
		case n > ethernet+ipv4+8 && p[12] == 0x08 && p[13] == 0 && p[ethernet+9] == unix.IPPROTO_UDP:
			if binary.BigEndian.Uint16(p[ethernet+ipv4+2:]) == 10 {
				return udp4, udp6
			}
			udp4 = true
		case n >= ethernet+ipv6 && p[12] == 0x86 && p[13] == 0xdd && p[ethernet+6] == unix.IPPROTO_UDP:
			udp6 = true
		}
	}
}

// runGated runs a child behind a gate. What it prints is this process's output.
func runGated(name string, args []string, d *decider) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return runNetwork(append([]string{self}, args...), []string{childVariable + "=" + name}, &sockets.Network{Connections: d})
}

func runNetwork(argv, env []string, n *sockets.Network) error {
	domain, err := Prepare(connected, testPath, supportOnce())
	if err != nil {
		return err
	}
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p, pid, err := startCommand(&Start{
		Domain: domain, Program: argv[0], Argv: argv, Env: env, Directory: dir, Files: []uintptr{0, 1, 2}, Network: n, Wake: func() {},
	})
	if err != nil {
		return err
	}
	_, err = unix.Wait4(pid, nil, unix.WALL, nil)
	p.Stop()
	return err
}

// bindOverResolvConf replaces the file for this process and its children.
func bindOverResolvConf(content string) {
	file, err := os.CreateTemp("", "resolv.conf")
	if err != nil {
		panic(err)
	}
	defer os.Remove(file.Name())
	_, _ = file.WriteString(content)
	_ = file.Chmod(0o644)
	if err := unix.Mount(file.Name(), "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		panic(err)
	}
}
