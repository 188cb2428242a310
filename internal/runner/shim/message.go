package shim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// A frame is four bytes of length and a JSON object. The files of a command come with the length, as descriptors: its input and its two
// outputs, and its directory if it has one.

// request is what a shim is told: a command, and then what concerns that one.
type request struct {
	Run  *command     `json:"run,omitempty"`
	Stop *runner.Stop `json:"stop,omitempty"`
	// Drained says that nobody writes to the command's output any more.
	Drained bool `json:"drained,omitempty"`
}

// reply is what a shim says: that it is ready for its first command, that a command was started, how it ended.
type reply struct {
	Ready   bool            `json:"ready,omitempty"`
	Started *time.Time      `json:"started,omitempty"`
	Ended   *result.Outcome `json:"ended,omitempty"`
	// Reusable says, with Ended, that nothing of the command is left in the shim.
	Reusable bool `json:"reusable,omitempty"`
}

// command is a runner.Command as it is sent. Texts are bytes, since JSON would change what isn't UTF-8.
type command struct {
	runner.Command
	Argv [][]byte `json:"argv"`
	Env  [][]byte `json:"env"`
	Dir  []byte   `json:"dir"`
}

func newCommand(c *runner.Command) *command {
	return &command{Command: *c, Argv: converted[[]byte](c.Argv), Env: converted[[]byte](c.Env), Dir: []byte(c.Dir)}
}

func (c *command) command() runner.Command {
	cmd := c.Command
	cmd.Argv, cmd.Env, cmd.Dir = converted[string](c.Argv), converted[string](c.Env), string(c.Dir)
	return cmd
}

func converted[To, From string | []byte](texts []From) []To {
	to := make([]To, len(texts))
	for i, text := range texts {
		to[i] = To(text)
	}
	return to
}

// maxReply is more than an outcome takes that lacks the output, and isn't shortened.
const maxReply = 16 << 20

const headerSize = 4

// maxFiles is how many descriptors come with a frame.
const maxFiles = 4

// send writes a frame, with the descriptors of files if there are any.
func send(to *net.UnixConn, message any, files ...*os.File) error {
	var frame bytes.Buffer
	frame.Write(make([]byte, headerSize))
	enc := json.NewEncoder(&frame)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(message); err != nil {
		return err
	}
	b := frame.Bytes()
	binary.NativeEndian.PutUint32(b, uint32(len(b)-headerSize))
	if len(files) > 0 {
		var fds []int
		for _, file := range files {
			fds = append(fds, int(file.Fd()))
		}
		// In a message of its own: a longer one could be sent in part.
		if _, _, err := to.WriteMsgUnix(b[:headerSize], unix.UnixRights(fds...), nil); err != nil {
			return err
		}
		b = b[headerSize:]
	}
	_, err := to.Write(b)
	return err
}

// receive reads a frame of at most limit bytes, and the files that came with it.
func receive(from *net.UnixConn, message any, limit int) (files []*os.File, err error) {
	var header [headerSize]byte
	rights := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, nrights, _, _, err := from.ReadMsgUnix(header[:], rights)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.EOF
	}
	if files, err = filesOf(rights[:nrights]); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	if _, err := io.ReadFull(from, header[n:]); err != nil {
		return files, err
	}
	size := binary.NativeEndian.Uint32(header[:])
	if int64(size) > int64(limit) {
		return files, fmt.Errorf("a frame of %d bytes, at most %d", size, limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(from, body); err != nil {
		return files, err
	}
	return files, json.Unmarshal(body, message)
}

// filesOf makes files of descriptors that came over a socket. They are closed on exec already.
func filesOf(rights []byte) (files []*os.File, err error) {
	fds, err := kernel.PassedFDs(rights)
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "received"))
	}
	return files, err
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}
