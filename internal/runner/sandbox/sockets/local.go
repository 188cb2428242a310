package sockets

import (
	"bytes"
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// Where the kernel may not connect any socket of the command, because nothing would stop one that is put in the place of another,
// Unix sockets are made and connected here as well. A peer then sees this process in SO_PEERCRED, with the command's user.

// retryLocal is the time between two tries to connect a Unix socket to a server that is busy: nothing says when it isn't.
const retryLocal = 5 * time.Millisecond

// isPathName reports whether an address of a Unix socket is a path.
func isPathName(raw []byte) bool { return len(raw) > leastAddress && raw[leastAddress] != 0 }

// connectLocal connects a held Unix socket. A path is resolved as the thread sees it, once.
func (g *Gate) connectLocal(c *kernel.Notification, inode uint64, raw []byte) unix.Errno {
	if len(raw) < leastAddress || len(raw) > unix.SizeofSockaddrUnix {
		return unix.EINVAL
	}
	family := binary.NativeEndian.Uint16(raw)
	if family != unix.AF_UNIX && family != unix.AF_UNSPEC {
		return unix.EINVAL
	}
	peer := noPeer
	if family == unix.AF_UNIX && isPathName(raw) {
		path, _, _ := bytes.Cut(raw[leastAddress:], []byte{0})
		var errno unix.Errno
		if peer, errno = c.Thread().Open(unix.AT_FDCWD, string(path), 0); errno != 0 {
			return errno
		}
		raw = append(raw[:leastAddress:leastAddress], kernel.FDPath(peer)+"\x00"...)
	}
	defer func() { unix.Close(peer) }()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch s := g.sockets[inode]; {
	case !g.listener.IsValid(c.ID): // what was read may be another process's
	case s == nil: // another thread has connected it, or it listens
		g.answerConnected(c.ID, inode)
	case s.connecting:
		return unix.EALREADY
	case s.isDatagram:
		g.answer(c.ID, connectSocket(s.fd, raw)) // datagrams wait for nobody
	default:
		s.connecting = true
		go g.connectStream(s, c.ID, sendTimeout(s.fd), raw, peer)
		peer = noPeer
	}
	return 0
}

// connectStream connects a Unix socket for a thread that waits up to limit; 0 is for ever. It takes the peer.
//
// It does so apart: a command that takes away the flag by which a connect doesn't wait, at the right moment, makes it wait for as long as
// the server is there. Nothing else waits then.
func (g *Gate) connectStream(s *socket, id uint64, limit time.Duration, raw []byte, peer int) {
	errno := g.connectPatiently(s, id, limit, raw)
	unix.Close(peer)
	g.mu.Lock()
	defer g.mu.Unlock()
	s.connecting = false
	if g.closed {
		return
	}
	if errno == 0 {
		g.drop(s)
	}
	g.answerConnect(id, s.inode, errno)
}

// maxConnecting is how many Unix sockets are being connected at a time: each takes a thread. Others wait as for a busy server.
const maxConnecting = 4

// connectPatiently tries again while the server is busy, for as long as the thread wants to wait, and is there.
func (g *Gate) connectPatiently(s *socket, id uint64, limit time.Duration, raw []byte) unix.Errno {
	began := time.Now()
	g.patient.Add(1)
	defer g.patient.Add(-1)
	// However many wait, they try no more often in all than maxConnecting of them would.
	for waits := false; ; time.Sleep(retryLocal * time.Duration(1+(g.patient.Load()-1)/maxConnecting)) {
		select {
		case g.connecting <- struct{}{}:
			blocks, errno := g.connectOnce(s, raw)
			<-g.connecting
			if waits = waits || blocks; errno != unix.EAGAIN || !waits {
				return errno
			}
		default:
		}
		if limit > 0 && time.Since(began) >= limit || !g.isWaiting(id) {
			return unix.EAGAIN
		}
	}
}

// connectOnce tries to connect a Unix socket, by a descriptor of its own: the command may close the other one, and have it swept, while it
// makes the connect wait.
func (g *Gate) connectOnce(s *socket, raw []byte) (blocks bool, errno unix.Errno) {
	fd, errno := g.duplicate(s)
	if errno != 0 {
		return false, errno
	}
	defer unix.Close(fd)
	return connectNow(fd, raw)
}

// isWaiting reports whether a call still waits for its answer.
func (g *Gate) isWaiting(id uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closed && g.listener.IsValid(id)
}

// noPeer stands for a descriptor of what a Unix socket is being connected to, where there is none. To close it does nothing.
const noPeer = -1

// localName is the name that a Unix socket is bound to, empty for none.
func localName(fd int) []byte {
	var address unix.RawSockaddrUnix
	length := uint32(unsafe.Sizeof(address))
	_, _, errno := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&length)))
	raw := (*[unsafe.Sizeof(address)]byte)(unsafe.Pointer(&address))
	if errno != 0 || length <= leastAddress || int(length) > len(raw) {
		return nil
	}
	return raw[leastAddress:length]
}

// listenLocal gives up a Unix socket that has a name: it won't be connected. The command listens itself, so that whoever connects
// sees its process.
func (g *Gate) listenLocal(s *socket) {
	if len(localName(s.fd)) > 0 {
		g.drop(s)
	}
}
