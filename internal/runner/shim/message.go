package shim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// A frame is four bytes of length and a JSON object. The directory of a command comes with the length, as a descriptor.

// request is what a shim is told. The number tells a stop for one command from the next command.
type request struct {
	Number uint64       `json:"number"`
	Run    *command     `json:"run,omitempty"`
	Stop   *runner.Stop `json:"stop,omitempty"`
}

// reply is what a shim says: that it is ready for its first command, that a command was started, how it ended.
type reply struct {
	Ready   bool            `json:"ready,omitempty"`
	Started *time.Time      `json:"started,omitempty"`
	Ended   *result.Outcome `json:"ended,omitempty"`
	// Reusable says, with Ended, that nothing of the command is left in the shim.
	Reusable bool `json:"reusable,omitempty"`
}

// command is a runner.Command without what can't be sent. Texts are bytes, since JSON would change what isn't UTF-8.
type command struct {
	Argv              [][]byte      `json:"argv"`
	Env               [][]byte      `json:"env"`
	Dir               []byte        `json:"dir"`
	Stdin             []byte        `json:"stdin,omitempty"`
	Timeout           time.Duration `json:"timeout,omitempty"`
	Grace             time.Duration `json:"grace,omitempty"`
	MaxBytesPerStream int           `json:"maxBytesPerStream"`
	Source            []byte        `json:"source,omitempty"`
	HasSource         bool          `json:"hasSource,omitempty"`
	Rules             *rules.Rules  `json:"rules,omitempty"`
	DenyNetwork       bool          `json:"denyNetwork,omitempty"`
}

func newCommand(c *runner.Command) *command {
	return &command{
		Argv: toBytes(c.Argv), Env: toBytes(c.Env), Dir: []byte(c.Dir), Stdin: c.Stdin, Timeout: c.Timeout, Grace: c.Grace,
		MaxBytesPerStream: c.MaxBytesPerStream, Source: c.Source, HasSource: c.Source != nil, Rules: c.Rules, DenyNetwork: c.DenyNetwork,
	}
}

func (c *command) command() runner.Command {
	cmd := runner.Command{
		Argv: toStrings(c.Argv), Env: toStrings(c.Env), Dir: string(c.Dir), Stdin: c.Stdin, Timeout: c.Timeout, Grace: c.Grace,
		MaxBytesPerStream: c.MaxBytesPerStream, Source: c.Source, Rules: c.Rules, DenyNetwork: c.DenyNetwork,
		Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if c.HasSource && cmd.Source == nil {
		cmd.Source = []byte{}
	}
	return cmd
}

func toBytes(texts []string) [][]byte {
	b := make([][]byte, len(texts))
	for i, text := range texts {
		b[i] = []byte(text)
	}
	return b
}

func toStrings(b [][]byte) []string {
	texts := make([]string, len(b))
	for i := range b {
		texts[i] = string(b[i])
	}
	return texts
}

// maxReply is more than the largest outcome takes.
const maxReply = result.MaxEncoded + 4<<10

const headerSize = 4

// send writes a frame, with a descriptor if dir isn't nil.
func send(to *net.UnixConn, message any, dir *os.File) error {
	var frame bytes.Buffer
	frame.Write(make([]byte, headerSize))
	enc := json.NewEncoder(&frame)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(message); err != nil {
		return err
	}
	b := frame.Bytes()
	binary.NativeEndian.PutUint32(b, uint32(len(b)-headerSize))
	if dir != nil {
		// In a message of its own: a longer one could be sent in part.
		if _, _, err := to.WriteMsgUnix(b[:headerSize], unix.UnixRights(int(dir.Fd())), nil); err != nil {
			return err
		}
		b = b[headerSize:]
	}
	_, err := to.Write(b)
	return err
}

// receive reads a frame of at most limit bytes, and the descriptor that came with it.
func receive(from *net.UnixConn, message any, limit int) (dir *os.File, err error) {
	var header [headerSize]byte
	rights := make([]byte, unix.CmsgSpace(4))
	n, nrights, _, _, err := from.ReadMsgUnix(header[:], rights)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.EOF
	}
	if nrights > 0 {
		if dir, err = directory(rights[:nrights]); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				dir.Close()
			}
		}()
	}
	if _, err := io.ReadFull(from, header[n:]); err != nil {
		return dir, err
	}
	size := binary.NativeEndian.Uint32(header[:])
	if int64(size) > int64(limit) {
		return dir, fmt.Errorf("a frame of %d bytes, at most %d", size, limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(from, body); err != nil {
		return dir, err
	}
	return dir, json.Unmarshal(body, message)
}

func directory(rights []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, errors.New("a directory that is none")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("a directory that is none")
	}
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "directory"), nil
}
