package supervisor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files"
	"toolcall.dev/operator/internal/spec"
)

var errPartOrder = errors.New("a part of the content is missing, or came twice")

var errTransfers = errors.New("the operator starts more transfers of files, or sends more ahead, than it may")

// transferSlots are for the transfers of files that run at a time, whatever connection they came on: one that hangs in a file system
// keeps its place, so that no more threads than theirs can hang.
var transferSlots = make(chan struct{}, wire.MaxTransfers)

// slotWait is how long a transfer waits for a place. Those of one connection have places: it waits only for some that hang.
const slotWait = time.Minute

var errNoSlot = errors.New("other files of the session hang in their file system: try again later, or end the session")

// transfers carry files for the operator on one connection. Each has a goroutine. Parts are sent in turn with output.
type transfers struct {
	reads *reads

	mu sync.Mutex
	// running has those that haven't ended.
	running map[uint64]*transfer
}

// transfer is one that hasn't ended. The operator sends no more ahead than the channels have room for.
type transfer struct {
	*transfers
	asked  *wire.Transfer
	files  *Executor
	ctx    context.Context
	cancel context.CancelFunc
	wants  chan *wire.Want
	parts  chan *wire.Part
	// payload is the memory of the part that is sent.
	payload []byte
}

// end cancels a transfer, which ends soon then.
func (t *transfers) end(id uint64) {
	if one := t.find(id); one != nil {
		one.cancel()
	}
}

// find returns a transfer that hasn't ended; nil for another one, for which messages may still be on their way.
func (t *transfers) find(id uint64) *transfer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running[id]
}

func (t *transfers) start(m *wire.Transfer, files *Executor) error {
	if err := m.Check(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// The ones that ended last may still be there.
	if files == nil || t.running[m.ID] != nil || len(t.running) >= 2*wire.MaxTransfers {
		return errTransfers
	}
	one := &transfer{
		transfers: t, asked: m, files: files,
		wants: make(chan *wire.Want, wire.MaxUnansweredParts), parts: make(chan *wire.Part, wire.MaxUnansweredParts),
	}
	one.ctx, one.cancel = context.WithCancel(t.reads.ctx)
	t.running[m.ID] = one
	// Nobody waits for its end: a file system that doesn't answer keeps it for as long as it likes.
	go one.run()
	return nil
}

// deliver hands a message to the transfer that it is for, unless that has ended.
func deliver[M interface{ Check() error }](m M, one *transfer, to func(*transfer) chan M) error {
	if err := m.Check(); err != nil || one == nil {
		return err
	}
	select {
	case to(one) <- m:
		return nil
	default:
		return errTransfers
	}
}

// run carries it from its start to its end, and says how it ended.
func (t *transfer) run() {
	defer t.cancel()
	end, err := t.do()
	if err != nil {
		reached := end.Next
		end = t.failed(err)
		end.Next = reached
	}
	end.ID, end.Ended = t.asked.ID, true
	t.mu.Lock()
	delete(t.running, t.asked.ID)
	t.mu.Unlock()
	_ = t.reads.inTurn(&wire.Message{State: &end})
}

// do carries it. The end has what there is to say if it went well.
func (t *transfer) do() (end wire.TransferState, err error) {
	if t.asked.Kind == wire.TransferInput {
		return t.input()
	}
	select {
	case transferSlots <- struct{}{}:
		defer func() { <-transferSlots }()
	case <-time.After(slotWait):
		return end, errNoSlot
	case <-t.ctx.Done():
		return end, t.ctx.Err()
	}
	rules, req, err := t.files.TransferRules(t.asked)
	if err != nil {
		return end, err
	}
	switch t.asked.Kind {
	case wire.TransferRead:
		return end, t.read(rules, req)
	case wire.TransferWrite:
		return t.write(rules, req)
	case wire.TransferPack:
		return end, t.pack(rules, req)
	case wire.TransferUnpack:
		return end, t.unpack(rules, req)
	default:
		req.Operation = spec.OperationDelete
		_, _, err := files.Do(t.ctx, rules, req)
		return end, err
	}
}

// next is the next thing that the operator sends.
func next[M any](ctx context.Context, sent <-chan M) (m M, err error) {
	select {
	case m = <-sent:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return m, err
}

// say tells the operator how far it is.
func (t *transfer) say(s wire.TransferState) error {
	s.ID = t.asked.ID
	return t.reads.inTurn(&wire.Message{State: &s})
}

// sumStep is how much of a file is summed at a time.
const sumStep = 8 << 20

// read sends what the operator wants of a file, until it has enough.
func (t *transfer) read(rules *files.Rules, req *spec.File) error {
	source, err := files.OpenSource(t.ctx, rules, req)
	if err != nil {
		return err
	}
	defer source.Close()
	if limit := rules.MaxReadBytes; t.asked.Whole && source.Size > limit {
		return refused(result.FileTooLarge, fmt.Sprintf(
			"the file has %d bytes, and the policy's files.maxReadBytes allows %d in an answer: ask for it in parts, with a Range header", source.Size, limit))
	}
	err = t.sum(source)
	if err == nil {
		err = t.say(wire.TransferState{Size: source.Size, SHA256: source.SHA256})
	}
	for err == nil {
		var w *wire.Want
		if w, err = next(t.ctx, t.wants); err == nil {
			err = t.sendPart(source, w)
		}
	}
	return err
}

// sum sums a file.
func (t *transfer) sum(source *files.Source) error {
	for {
		if done, err := source.SumSome(t.ctx, sumStep); err != nil || done {
			return err
		}
	}
}

// newPart is a part to be filled, in the memory of the one before, which was sent.
func (t *transfer) newPart(w *wire.Want) *wire.Part {
	if cap(t.payload) < w.Max {
		t.payload = make([]byte, w.Max)
	}
	return &wire.Part{ID: w.ID, Offset: w.Offset, Payload: t.payload[:w.Max]}
}

func (t *transfer) sendPart(source *files.Source, w *wire.Want) error {
	part := t.newPart(w)
	n, err := source.ReadAt(t.ctx, part.Payload, w.Offset)
	if err != nil {
		return err
	}
	part.Bytes, part.Payload = n, part.Payload[:n]
	return t.reads.inTurn(&wire.Message{Part: part})
}

// write writes a file of the parts that come.
func (t *transfer) write(rules *files.Rules, req *spec.File) (end wire.TransferState, err error) {
	target, err := files.OpenTarget(t.ctx, rules, req)
	if err != nil {
		return end, err
	}
	defer target.Close()
	err = t.receiveParts(func(part *wire.Part) error {
		_, err := target.Write(part.Payload)
		return err
	})
	if err != nil {
		return end, err
	}
	done, err := target.Commit()
	if err != nil {
		return end, err
	}
	return wire.TransferState{Size: *done.Bytes, Next: *done.Bytes, SHA256: done.SHA256, Created: done.Created}, nil
}

// receiveParts has each part taken as it comes, in order, up to the last one, and says after each how far it is.
func (t *transfer) receiveParts(take func(*wire.Part) error) error {
	for offset := int64(0); ; {
		if err := t.say(wire.TransferState{Next: offset}); err != nil {
			return err
		}
		part, err := next(t.ctx, t.parts)
		if err != nil {
			return err
		}
		if part.Offset != offset {
			return errPartOrder
		}
		if err := take(part); err != nil || part.End {
			return err
		}
		offset += int64(len(part.Payload))
	}
}

// reasonCanceled is why a transfer ends that the operator cancelled.
const reasonCanceled = "Canceled"

// failed is the end of one that failed.
func (t *transfer) failed(err error) wire.TransferState {
	// Before it is cut: a part of a value would stay.
	s := wire.TransferState{Reason: reasonOf(err), Message: t.files.TransferMessage(t.asked, err.Error())}
	switch {
	case s.Reason != "":
	case t.ctx.Err() != nil:
		s.Reason = reasonCanceled
	default:
		s.Reason = result.FileError
	}
	s.Message = strings.ToValidUTF8(s.Message, "\uFFFD")
	if len(s.Message) > wire.MaxMessageBytes {
		s.Message = strings.ToValidUTF8(s.Message[:wire.MaxMessageBytes], "")
	}
	return s
}

// TransferRules says what a transfer may reach, which is what an operation on files of a call would that sets nothing itself: the
// rules, and the request with the directories that its path can be relative to. Only without a limit of its own a policy lets
// transfers be of any size.
func (e *Executor) TransferRules(t *wire.Transfer) (*files.Rules, *spec.File, error) {
	a := &wire.Assignment{File: &spec.File{Rules: t.Rules}, Environment: t.Environment}
	dir, err := e.fileDir(&a.Environment)
	if err != nil {
		return nil, nil, err
	}
	rules := e.fileRules(a, dir)
	if rules.MaxReadBytes == 0 {
		rules.MaxReadBytes = math.MaxInt64
	}
	if rules.MaxWriteBytes == 0 {
		rules.MaxWriteBytes = math.MaxInt64
	}
	return rules, &spec.File{Path: t.Path, IfSHA256: t.IfSHA256, WorkingDir: dir, Home: e.callHome(&a.Environment)}, nil
}

// TransferMessage is what is shown of a message about a transfer: nothing of the values that one about a call doesn't show. It can
// have paths that calls have made.
func (e *Executor) TransferMessage(t *wire.Transfer, message string) string {
	resolved, err := envresolve.Resolve(&envresolve.Plan{Known: t.Environment.Known}, e.Environ, wire.Internal)
	var hidden *redaction
	if err == nil {
		hidden, err = newRedaction(resolved.Known)
	}
	if err != nil {
		return fmt.Sprintf("the reason isn't shown, because values in it can't be redacted: %v", err)
	}
	return hidden.hostText(message)
}
