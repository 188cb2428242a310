package supervisor

import (
	"errors"
	"io"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files"
	"toolcall.dev/operator/internal/spec"
)

// yielding gives up its place among operations on files while it waits for the operator.
type yielding struct {
	io.Reader
	io.Writer
}

func (y *yielding) Read(p []byte) (int, error) {
	<-fileSlots
	defer func() { fileSlots <- struct{}{} }()
	return y.Reader.Read(p)
}

func (y *yielding) Write(p []byte) (int, error) {
	<-fileSlots
	defer func() { fileSlots <- struct{}{} }()
	return y.Writer.Write(p)
}

// pack sends a directory as an archive.
func (t *transfer) pack(rules *files.Rules, req *spec.File) error {
	if err := t.say(wire.TransferState{}); err != nil {
		return err
	}
	read, write := io.Pipe()
	defer read.Close()
	go func() {
		_ = write.CloseWithError(t.step(func() error { return files.Pack(t.ctx, rules, req, &yielding{Writer: write}) }))
	}()
	for {
		select {
		case w := <-t.wants:
			part := t.newPart(w)
			n, err := io.ReadFull(read, part.Payload)
			part.End = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
			if err != nil && !part.End {
				return err
			}
			part.Bytes, part.Payload = n, part.Payload[:n]
			if err := t.inTurn(&wire.Message{Part: part}); err != nil || part.End {
				return err
			}
		case <-t.ctx.Done():
			return t.ctx.Err()
		}
	}
}

// errUnpacked ends the writing of what follows an archive.
var errUnpacked = errors.New("the archive has ended")

// errTrailer says that what follows an archive isn't a part of it.
var errTrailer = &files.Error{Reason: result.InvalidRequest, Message: "more than 1 MiB follows the archive's end: end the request with the archive"}

// maxTrailer is how much may follow an archive's end: programs fill up their last block.
const maxTrailer = 1 << 20

// unpack writes what is in an archive.
func (t *transfer) unpack(rules *files.Rules, req *spec.File) error {
	read, write := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := t.step(func() error { return files.Unpack(t.ctx, rules, req, &yielding{Reader: read}) })
		_ = read.CloseWithError(errors.Join(errUnpacked, err))
		unpacked <- err
	}()
	trailer := 0
	err := t.receiveParts(func(part *wire.Part) error {
		n, err := write.Write(part.Payload)
		if err == nil {
			return nil
		}
		if failed := <-unpacked; failed != nil {
			return failed
		}
		// It is asked again at the end.
		unpacked <- nil
		if trailer += len(part.Payload) - n; trailer > maxTrailer {
			return errTrailer
		}
		return nil
	})
	if err != nil {
		// The file that is being written is given up.
		_ = write.CloseWithError(err)
		return err
	}
	_ = write.Close()
	return <-unpacked
}
