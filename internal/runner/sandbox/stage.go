package sandbox

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/filter"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// stageName is argv[0] of a stage.
const stageName = "toolcall-stage"

// init makes this program the stage if it was started as one, before most of it is set up.
func init() {
	if len(os.Args) == 1 && os.Args[0] == stageName {
		runStage()
	}
}

// What a stage says: a byte, and an error number for a failure. Nothing more follows when the command is executed,
// because the socket is closed then.
const (
	sayListener = 'L'
	sayFailure  = 'F'
)

// start is what a stage is told: the command, and as descriptors the working directory, the command's files from 0 on,
// and the ruleset if there is one.
type start struct {
	program   string
	argv, env []string
	options   filter.Options
	// files is how many descriptors the command gets, rulesets how many follow: none or one. A stage that doesn't get it doesn't go on.
	files, rulesets int
}

// encode writes four numbers of four bytes, and strings that each end with a zero byte. The kernel executes none that has one.
func (s *start) encode() ([]byte, error) {
	order := binary.NativeEndian
	b := order.AppendUint32(nil, uint32(s.options))
	b = order.AppendUint32(b, uint32(s.files))
	b = order.AppendUint32(b, uint32(s.rulesets))
	b = order.AppendUint32(b, uint32(len(s.argv)))
	for _, text := range slices.Concat([]string{s.program}, s.argv, s.env) {
		if strings.Contains(text, "\x00") {
			return nil, unix.EINVAL
		}
		b = append(append(b, text...), 0)
	}
	return b, nil
}

// decodeStart reads what encode has written: both ends are the same program.
func decodeStart(b []byte) start {
	order := binary.NativeEndian
	argc := int(order.Uint32(b[12:]))
	texts := strings.Split(string(b[16:len(b)-1]), "\x00")
	return start{
		program: texts[0], argv: texts[1 : 1+argc], env: texts[1+argc:],
		options: filter.Options(order.Uint32(b)), files: int(order.Uint32(b[4:])), rulesets: int(order.Uint32(b[8:])),
	}
}

// runStage becomes the command. It doesn't return. The goroutine of an init function is locked to the first thread,
// which therefore is the one that is restricted and executes.
func runStage() {
	control, err := unix.FcntlInt(kernel.ControlFD, unix.F_DUPFD_CLOEXEC, 64)
	if err != nil {
		os.Exit(1)
	}
	// The descriptor stays taken, so that nothing that is received gets its number.
	unix.CloseOnExec(kernel.ControlFD)
	s, fds, err := receiveStart(control)
	if err != nil {
		os.Exit(0) // nobody needs it any more
	}
	fail(control, stageCommand(control, &s, fds))
}

func fail(control int, err error) {
	errno := kernel.ErrnoOf(errors.Unwrap(err), kernel.ErrnoOf(err, unix.EINVAL))
	b := binary.NativeEndian.AppendUint32([]byte{sayFailure}, uint32(errno))
	_, _ = unix.Write(control, b)
	os.Exit(1)
}

// stageCommand restricts this thread and executes the command. It returns only after an error.
func stageCommand(control int, s *start, fds []int) error {
	directory, files, ruleset := fds[0], fds[1:1+s.files], kernel.NoRuleSet
	if s.rulesets > 0 {
		ruleset = fds[1+s.files]
	}
	if err := unix.Fchdir(directory); err != nil {
		return err
	}
	for to, from := range files {
		if err := unix.Dup3(from, to, 0); err != nil {
			return err
		}
	}
	// On a thread of its own, which the filter doesn't hold: it may hold what is used here.
	send, sent := make(chan int), make(chan error)
	if s.options.Asks() {
		go func() {
			sent <- unix.Sendmsg(control, []byte{sayListener}, unix.UnixRights(<-send), nil, 0)
		}()
	}
	listener, err := restrictThread(ruleset, s.options)
	if err != nil {
		return err
	}
	if s.options.Asks() {
		send <- listener
		if err := <-sent; err != nil {
			return err
		}
		// If the supervisor ends, the kernel answers what is executed: nobody else may hold the listener.
		unix.Close(listener)
	}
	return syscall.Exec(s.program, s.argv, s.env)
}

// receiveStart reads the message and its descriptors. The length comes first, with the descriptors.
func receiveStart(control int) (s start, fds []int, err error) {
	length := make([]byte, 4)
	rights := make([]byte, unix.CmsgSpace(16*4))
	n, nrights, _, _, err := unix.Recvmsg(control, length, rights, unix.MSG_CMSG_CLOEXEC|unix.MSG_WAITALL)
	if err != nil || n < len(length) {
		return s, nil, io.ErrUnexpectedEOF
	}
	if fds, err = kernel.PassedFDs(rights[:nrights]); err != nil {
		return s, nil, err
	}
	body := make([]byte, binary.NativeEndian.Uint32(length))
	for read := 0; read < len(body); {
		n, err := unix.Read(control, body[read:])
		if err != nil || n == 0 {
			return s, nil, io.ErrUnexpectedEOF
		}
		read += n
	}
	return decodeStart(body), fds, nil
}
