package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// children are commands under test that are parts of this test binary.
var children = map[string]func(args []string){
	"race-address":    raceAddress,
	"race-bind":       raceBind,
	"race-descriptor": raceDescriptor,
	"send-datagrams":  sendDatagrams,
	"supervise":       superviseApart,
	"connect":         connectOften,
}

// addressOf is struct sockaddr_in for a port on the loopback interface.
func addressOf(port string) []byte {
	n, _ := strconv.Atoi(port)
	raw := make([]byte, unix.SizeofSockaddrInet4)
	binary.NativeEndian.PutUint16(raw, unix.AF_INET)
	binary.BigEndian.PutUint16(raw[2:], uint16(n))
	copy(raw[4:], []byte{127, 0, 0, 1})
	return raw
}

// connectSocket and bindSocket are the system calls with an address that another thread may change meanwhile.
func connectSocket(fd int, raw []byte) unix.Errno { return withAddress(unix.SYS_CONNECT, fd, raw) }

func bindSocket(fd int, raw []byte) unix.Errno { return withAddress(unix.SYS_BIND, fd, raw) }

func withAddress(call uintptr, fd int, raw []byte) unix.Errno {
	for {
		_, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw)))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// sockaddr is an address of IPv4, or of IPv6.
func sockaddr(family int, a netip.AddrPort) unix.Sockaddr {
	if family == unix.AF_INET {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// raceAddress connects while another thread changes the port from one that is let through to one that isn't.
func raceAddress(args []string) {
	listed, other := addressOf(args[0]), addressOf(args[1])
	tries, _ := strconv.Atoi(args[2])
	raw, stop := changing(listed, other)
	defer stop()
	through, refused := 0, 0
	for range tries {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		switch connectSocket(fd, raw) {
		case 0:
			through++
		case unix.EACCES:
			refused++
		}
		unix.Close(fd)
	}
	fmt.Println(through > tries/100, refused > tries/100)
}

// changing is an address whose port another thread changes all the time.
func changing(one, other []byte) (raw []byte, stop func()) {
	raw = append([]byte(nil), one...)
	port := (*atomic.Uint32)(unsafe.Pointer(&raw[0])) // family and port
	a, b := *(*uint32)(unsafe.Pointer(&one[0])), *(*uint32)(unsafe.Pointer(&other[0]))
	var stopped atomic.Bool
	go func() {
		for !stopped.Load() {
			port.Store(b)
			port.Store(a)
		}
	}()
	return raw, func() { stopped.Store(true) }
}

// raceBind binds UDP sockets while another thread changes the port from any to the nameserver's.
func raceBind(args []string) {
	tries, _ := strconv.Atoi(args[1])
	raw, stop := changing(addressOf("0"), addressOf(args[0]))
	defer stop()
	bound, refused, taken := 0, 0, 0
	for range tries {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		switch bindSocket(fd, raw) {
		case 0:
			bound++
		case unix.EADDRINUSE:
			refused++
		}
		if local, err := unix.Getsockname(fd); err == nil && strconv.Itoa(local.(*unix.SockaddrInet4).Port) == args[0] {
			taken++
		}
		unix.Close(fd)
	}
	fmt.Println(bound > tries/100, refused > tries/100, taken)
}

// raceDescriptor connects what is a Unix socket at one time and a TCP socket at another.
func raceDescriptor(args []string) {
	raw := addressOf(args[0])
	tries, _ := strconv.Atoi(args[1])
	local, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	tcp, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	var current atomic.Int64
	current.Store(int64(tcp))
	const at = 100
	_ = unix.Dup3(local, at, unix.O_CLOEXEC)
	var stop atomic.Bool
	go func() {
		for !stop.Load() {
			_ = unix.Dup3(int(current.Load()), at, unix.O_CLOEXEC)
			_ = unix.Dup3(local, at, unix.O_CLOEXEC)
		}
	}()
	answers := map[unix.Errno]int{}
	for range tries {
		errno := connectSocket(at, raw)
		answers[errno]++
		if errno == 0 || errno == unix.EISCONN {
			unix.Close(tcp)
			if tcp, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
				break
			}
			current.Store(int64(tcp))
		}
	}
	stop.Store(true)
	// A Unix socket takes no such address; a TCP socket is refused.
	fmt.Println(answers[unix.EINVAL] > tries/100, answers[unix.EACCES] > tries/100)
}

// connectOften prints how long a connection takes.
func connectOften(args []string) {
	tries, _ := strconv.Atoi(args[1])
	raw := addressOf(args[0])
	for range tries {
		began := unix.Timespec{}
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &began)
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		made := unix.Timespec{}
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &made)
		errno := connectSocket(fd, raw)
		done := unix.Timespec{}
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &done)
		unix.Close(fd)
		if errno != 0 {
			fmt.Println(errno)
			return
		}
		fmt.Println(made.Nano()-began.Nano(), done.Nano()-made.Nano())
	}
}

// superviseApart is a supervisor with a command of its own. Everything is let through.
func superviseApart(args []string) {
	if err := runNetwork(args, []string{"PATH=" + testPath}, &sockets.Network{Connections: &decider{all: true}}); err != nil {
		panic(err)
	}
}

// sendDatagrams tries to send to each address in every way there is. It prints the ways that the kernel took for sent.
func sendDatagrams(args []string) {
	for _, to := range args {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			a := netip.MustParseAddrPort(to)
			if family == unix.AF_INET && !a.Addr().Is4() {
				continue
			}
			sendEveryWay(family, sockaddr(family, a))
		}
	}
}

func sendEveryWay(family int, to unix.Sockaddr) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		fmt.Println("no socket:", err)
		return
	}
	defer unix.Close(fd)
	say := func(way string, err error) {
		if err == nil {
			fmt.Println(way)
		}
	}
	message := func(way string, oob []byte, to unix.Sockaddr, flags int) {
		_, err := unix.SendmsgN(fd, []byte(way), oob, to, flags)
		say(way, err)
	}
	addressed := func(when string) {
		say("sendto "+when, unix.Sendto(fd, []byte("sendto"), 0, to))
		message("sendmsg "+when, nil, to, 0)
		message("more "+when, nil, to, unix.MSG_MORE)
		message("after more "+when, nil, to, 0)
		message("confirm "+when, nil, to, unix.MSG_CONFIRM)
		message("dontroute "+when, nil, to, unix.MSG_DONTROUTE)
		message("interface "+when, packetInfo(family), to, 0)
		message("segments "+when, segments(), to, 0)
		message("zerocopy "+when, nil, to, unix.MSG_ZEROCOPY)
	}
	addressed("at first")
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	addressed("with options")
	if err := unix.Connect(fd, to); err == nil {
		sendConnected(fd, say)
	}
	_ = connectSocket(fd, make([]byte, unix.SizeofSockaddrInet4)) // AF_UNSPEC
	_ = unix.Shutdown(fd, unix.SHUT_RD)
	addressed("disconnected")
	if unix.Connect(fd, to) == nil {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_ADDRFORM, unix.AF_INET)
		_, err := unix.Write(fd, []byte("addrform"))
		say("addrform", err)
	}
}

func sendConnected(fd int, say func(string, error)) {
	_, err := unix.Write(fd, []byte("write"))
	say("write", err)
	_, err = unix.Writev(fd, [][]byte{[]byte("wri"), []byte("tev")})
	say("writev", err)
	_, err = unix.Write(fd, nil)
	say("empty", errors.Join(err, unix.Sendto(fd, nil, 0, nil)))
	_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_CORK, 1)
	_, err = unix.Write(fd, []byte("cork"))
	say("cork", errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_CORK, 0)))
	_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 3)
	_, err = unix.Write(fd, []byte("segment"))
	say("segment", err)
	_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0)
	var pipe [2]int
	if unix.Pipe2(pipe[:], unix.O_CLOEXEC) != nil {
		return
	}
	_, _ = unix.Write(pipe[1], []byte("splice"))
	_, err = unix.Splice(pipe[0], nil, fd, nil, 6, 0)
	say("splice", err)
	data := []byte("vmsplice")
	_, _ = unix.Vmsplice(pipe[1], []unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}, 0)
	_, err = unix.Splice(pipe[0], nil, fd, nil, 100, unix.SPLICE_F_MORE)
	say("vmsplice", err)
	if file, err := unix.Open("/etc/passwd", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		_, err = unix.Sendfile(fd, file, nil, 10)
		say("sendfile", err)
	}
	var messages [2]struct {
		header unix.Msghdr
		sent   uint32
	}
	for i := range messages {
		messages[i].header.Iov = &unix.Iovec{Base: &data[0], Len: uint64(len(data))}
		messages[i].header.Iovlen = 1
	}
	_, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&messages)), 2, 0, 0, 0)
	say("sendmmsg", errnoOrNil(errno))
	say("asynchronously", writeAsynchronously(fd, data))
}

// writeAsynchronously writes with the kernel's old asynchronous calls, which no filter here knows.
func writeAsynchronously(fd int, data []byte) error {
	var context uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)), 0); errno != 0 {
		return errno
	}
	// struct iocb
	block := struct {
		data          uint64
		key, flags    uint32
		operation     uint16
		priority      int16
		fd            uint32
		buffer, count uint64
		offset        int64
		rest          [2]uint64
	}{operation: 1, fd: uint32(fd), buffer: uint64(uintptr(unsafe.Pointer(&data[0]))), count: uint64(len(data))}
	blocks := [1]uintptr{uintptr(unsafe.Pointer(&block))}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, context, 1, uintptr(unsafe.Pointer(&blocks))); errno != 0 {
		return errno
	}
	var event [4]int64 // struct io_event
	_, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, context, 1, 1, uintptr(unsafe.Pointer(&event)), 0, 0)
	if errno == 0 && event[2] < 0 {
		return unix.Errno(-event[2])
	}
	return errnoOrNil(errno)
}

func errnoOrNil(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// packetInfo names the loopback interface for one datagram.
func packetInfo(family int) []byte {
	if family == unix.AF_INET {
		return unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: 1})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: 1})
}

// segments has one datagram sent as several.
func segments() []byte {
	b := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	b[unix.CmsgLen(0)] = 4
	return b
}
