package supervisor

import (
	"errors"
	"io"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files"
	"toolcall.dev/operator/internal/spec"
)

// pack sends a directory as an archive.
func (t *transfer) pack(rules *files.Rules, req *spec.File) error {
	if err := t.say(wire.TransferState{}); err != nil {
		return err
	}
	read, write := io.Pipe()
	packed := make(chan struct{})
	defer func() {
		read.Close()
		<-packed
	}()
	go func() {
		defer close(packed)
		_ = write.CloseWithError(files.Pack(t.ctx, rules, req, write))
	}()
	for {
		w, err := next(t.ctx, t.wants)
		if err != nil {
			return err
		}
		part := t.newPart(w)
		n, err := io.ReadFull(read, part.Payload)
		part.End = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !part.End {
			return err
		}
		part.Bytes, part.Payload = n, part.Payload[:n]
		if err := t.reads.inTurn(&wire.Message{Part: part}); err != nil || part.End {
			return err
		}
	}
}

// errTrailer says that what follows an archive isn't a part of it.
var errTrailer = &files.Error{Reason: result.InvalidRequest, Message: "more than 1 MiB follows the archive's end: end the request with the archive"}

// maxTrailer is how much may follow an archive's end: programs fill up their last block.
const maxTrailer = 1 << 20

// unpack writes what is in an archive.
func (t *transfer) unpack(rules *files.Rules, req *spec.File) error {
	read, write := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := files.Unpack(t.ctx, rules, req, read)
		if err == nil {
			err = skipTrailer(read)
		}
		_ = read.CloseWithError(err)
		unpacked <- err
	}()
	err := t.receiveParts(func(part *wire.Part) error {
		_, err := write.Write(part.Payload)
		return err
	})
	// After an error, the file that is being written is given up.
	_ = write.CloseWithError(err)
	if failed := <-unpacked; err == nil {
		err = failed
	}
	return err
}

func skipTrailer(r io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxTrailer+1))
	if n > maxTrailer {
		return errTrailer
	}
	return err
}
