package subresources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

// bodyTimeout is how long a client may take to send, or to take, a part of wire.MaxPart bytes.
const bodyTimeout = time.Minute

// serveFiles reads, writes or deletes a file.
func (p *proxy) serveFiles(q *exchange) error {
	r := q.r
	asked, err := parseFileRequest(r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err := p.open(ctx, q); err != nil {
		return err
	}
	session := q.session
	decision, err := p.rules.decide(ctx, q.who, session, &v1alpha1.ToolCallSpec{File: asked.action()})
	if err != nil {
		return err
	}
	if err := p.rules.judge(asked, decision.Policy); err != nil {
		return apierrors.NewForbidden(sessionResource, session.Name, err)
	}
	if decision.Files == nil {
		return unavailable("the decision has no rules for files")
	}
	runner, err := p.runnerOf(session)
	if err != nil {
		return err
	}
	leave, err := p.enterSession(q.object)
	if err != nil {
		return err
	}
	defer leave()
	f := &fileAnswer{proxy: p, exchange: q, request: asked, rules: *decision.Files}
	if asked.kind == wire.TransferWrite && f.rules.MaxWriteBytes > 0 && r.ContentLength > f.rules.MaxWriteBytes {
		return transferFailed(&dispatch.TransferError{
			Reason:  v1alpha1.ReasonFileTooLarge,
			Message: fmt.Sprintf("the content has %d bytes, and the policy's files.maxWriteBytes allows %d", r.ContentLength, f.rules.MaxWriteBytes),
		}, asked)
	}
	f.transfer, err = runner.Transfer(ctx, wire.Transfer{
		Kind: asked.kind, Path: asked.path, IfSHA256: asked.ifSHA256, Rules: f.rules, Environment: decision.Plan,
		Whole: r.Method == http.MethodGet && r.Header.Get("Range") == "" && asked.ifMatch == "" && asked.ifNoneMatch == "",
	})
	if err != nil {
		return transferFailed(err, asked)
	}
	defer f.transfer.Close()
	switch asked.kind {
	case wire.TransferRead:
		return f.send(ctx)
	case wire.TransferWrite, wire.TransferUnpack:
		return f.receive(ctx)
	case wire.TransferPack:
		return f.sendArchive(ctx)
	default:
		if _, err := f.transfer.Finish(ctx); err != nil {
			return transferFailed(err, asked)
		}
		q.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// isArchive says that a directory is asked for, or sent.
func (q *fileRequest) isArchive() bool {
	return q.kind == wire.TransferPack || q.kind == wire.TransferUnpack
}

// judge says why the policy's rules can't judge a request, of which they see the operation and the path.
func (s *sessionRules) judge(q *fileRequest, policy *v1alpha1.ExecutionPolicy) error {
	if policy == nil || len(policy.Spec.Rules) == 0 {
		return nil
	}
	if q.isArchive() {
		return errors.New("the policy has rules, which can't judge what is in an archive: transfer the files one by one")
	}
	compiled, err := s.snapshots.Policies.Compile(policy)
	if err != nil {
		return err
	}
	if name := compiled.RuleOnContent(); name != "" && q.kind == wire.TransferWrite {
		return fmt.Errorf("the policy's rule %q looks at the content, which it can't see in a transfer: create a ToolCall that writes the file", name)
	}
	return nil
}

// action is what a call would do that asks for the same.
func (q *fileRequest) action() *v1alpha1.FileAction {
	switch q.kind {
	case wire.TransferRead, wire.TransferPack:
		return &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: q.path}
	case wire.TransferWrite, wire.TransferUnpack:
		return &v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: q.path, Content: ptr.To("")}
	default:
		return &v1alpha1.FileAction{Operation: v1alpha1.FileDelete, Path: q.path}
	}
}

// fileAnswer is a file that goes up or down.
type fileAnswer struct {
	*proxy
	*exchange
	request  *fileRequest
	rules    spec.FileRules
	transfer *dispatch.Transfer
}

// send sends the file, or the part that was asked for.
func (f *fileAnswer) send(ctx context.Context) error {
	state, h := f.transfer.State(), f.Header()
	tag := tagOf(state.SHA256)
	h.Set("ETag", tag)
	switch {
	case f.request.ifMatch != "" && !listsTag(f.request.ifMatch, tag, false):
		return statusError(http.StatusPreconditionFailed, v1alpha1.ReasonFileChanged, nil, "the file has the ETag %s, and not %.100s", tag, f.request.ifMatch)
	case f.request.ifNoneMatch != "" && listsTag(f.request.ifNoneMatch, tag, true):
		f.WriteHeader(http.StatusNotModified)
		return nil
	}
	start, end, isPart, err := f.part(tag, state.Size)
	if err != nil {
		return err
	}
	// What a call wrote is never shown as a page of the API server's origin.
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Length", strconv.FormatInt(end-start, 10))
	code := http.StatusOK
	if isPart {
		code = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, end-1, state.Size))
	}
	if f.r.Method == http.MethodHead {
		f.WriteHeader(code)
		return nil
	}
	// Of an answer that breaks off, the length tells a client that something is lacking.
	isBegun, err := f.stream(code, func(pass func([]byte) error) error { return f.transfer.Read(ctx, start, end, pass) })
	if isBegun {
		f.brokeOff = err != nil
		return nil
	}
	return err
}

// sendArchive sends a directory. It has no length, so that an answer which breaks off has to look like one.
func (f *fileAnswer) sendArchive(ctx context.Context) error {
	f.Header().Set("Content-Type", "application/x-tar")
	f.Header().Set("X-Content-Type-Options", "nosniff")
	isBegun, err := f.stream(http.StatusOK, func(pass func([]byte) error) error { return f.transfer.ReadArchive(ctx, pass) })
	if err != nil && isBegun {
		panic(http.ErrAbortHandler)
	}
	return err
}

// stream sends what is read as it comes. Until the first part is there an error can still be told.
func (f *fileAnswer) stream(code int, read func(pass func([]byte) error) error) (isBegun bool, err error) {
	begin := func() {
		if !isBegun {
			f.WriteHeader(code)
			isBegun = true
		}
	}
	err = read(func(part []byte) error {
		begin()
		_, err := f.Write(part)
		return err
	})
	_ = f.SetWriteDeadline(time.Time{})
	switch {
	case err == nil:
		begin()
	case !isBegun:
		err = transferFailed(err, f.request)
	}
	return isBegun, err
}

// part says which bytes are asked for.
func (f *fileAnswer) part(tag string, size int64) (start, end int64, isPart bool, err error) {
	condition := f.r.Header.Get("If-Range")
	header := f.r.Header.Clone()
	header.Del("If-Range")
	if condition != "" && condition != tag {
		header.Del("Range")
	}
	q := &logRequest{limit: unlimited}
	if err := q.parseRangeHeader(&http.Request{Header: header}, nil); err != nil {
		return 0, 0, false, err
	}
	start, end, err = q.resolve(output.Info{Bytes: size, Complete: true})
	if apierrors.ReasonForError(err) == ReasonRangeNotSatisfiable {
		f.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
	}
	if limit := f.rules.MaxReadBytes; err == nil && f.r.Method != http.MethodHead && limit > 0 && end-start > limit {
		err = statusError(http.StatusRequestEntityTooLarge, v1alpha1.ReasonFileTooLarge, nil,
			"these are %d bytes, and the policy's files.maxReadBytes allows %d in an answer: ask for them in parts, with a Range header", end-start, limit)
	}
	return start, end, q.span != nil, err
}

// receive writes the file.
func (f *fileAnswer) receive(ctx context.Context) error {
	switch err := f.passOn(ctx, unlimited); {
	case errors.Is(err, errBrokeOff):
		return badRequest("%s: the file that it was in wasn't written", err.Error())
	case err != nil:
		return transferFailed(err, f.request)
	}
	state, err := f.transfer.Finish(ctx)
	if err != nil {
		return transferFailed(err, f.request)
	}
	if f.request.kind == wire.TransferWrite {
		f.Header().Set("ETag", tagOf(state.SHA256))
	}
	f.Header().Set("Content-Length", "0")
	code := http.StatusOK
	if state.Created {
		code = http.StatusCreated
	}
	f.WriteHeader(code)
	return nil
}

// errBrokeOff says that the client's body broke off, errTooLong that it is longer than it may be.
var errBrokeOff, errTooLong = errors.New("the content broke off"), errors.New("the content is too long")

// passOn passes on the client's body, of at most so many bytes.
func (f *fileAnswer) passOn(ctx context.Context, most int64) error {
	buffer := make([]byte, wire.MaxPart)
	for total := int64(0); ; {
		n, isLast, err := f.fill(buffer)
		total += int64(n)
		if err == nil && isLast && f.r.ContentLength >= 0 && total != f.r.ContentLength {
			err = io.ErrUnexpectedEOF
		}
		switch {
		case total > most:
			return errTooLong
		case errors.Is(err, os.ErrDeadlineExceeded):
			return statusError(http.StatusRequestTimeout, metav1.StatusReasonTimeout, nil,
				"the content came too slowly: after %d bytes, fewer than %d came within %s, the least rate", total-int64(n), wire.MaxPart, bodyTimeout)
		case err != nil:
			return fmt.Errorf("%w after %d bytes: %w", errBrokeOff, total, err)
		}
		if err := f.transfer.Write(ctx, buffer[:n], isLast); err != nil || isLast {
			return err
		}
	}
}

// fill reads as much as fits. Only the body's own end is the last; an error is one that breaks it off.
func (f *fileAnswer) fill(buffer []byte) (n int, isLast bool, err error) {
	// Not every reader can be given a time.
	_ = f.SetReadDeadline(f.clock.Now().Add(bodyTimeout))
	defer func() { _ = f.SetReadDeadline(time.Time{}) }()
	for n < len(buffer) {
		got, err := f.r.Body.Read(buffer[n:])
		n += got
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// codes are how reasons of files are told in HTTP.
var codes = map[string]int32{
	v1alpha1.ReasonFileNotFound:         http.StatusNotFound,
	v1alpha1.ReasonFileExists:           http.StatusPreconditionFailed,
	v1alpha1.ReasonIsDirectory:          http.StatusConflict,
	v1alpha1.ReasonNotDirectory:         http.StatusConflict,
	v1alpha1.ReasonPathNotAllowed:       http.StatusForbidden,
	v1alpha1.ReasonPermissionDenied:     http.StatusForbidden,
	v1alpha1.ReasonFileTooLarge:         http.StatusRequestEntityTooLarge,
	v1alpha1.ReasonNoSpace:              http.StatusInsufficientStorage,
	v1alpha1.ReasonWorkingDirNotFound:   http.StatusConflict,
	v1alpha1.ReasonWorkingDirNotAllowed: http.StatusConflict,
	result.InvalidRequest:               http.StatusBadRequest,
	result.NotSupported:                 http.StatusNotImplemented,
}

// transferFailed is what a client is told when a runner doesn't do what was asked.
func transferFailed(err error, asked *fileRequest) error {
	var failed *dispatch.TransferError
	switch {
	case errors.As(err, &failed):
	case apierrors.ReasonForError(err) == metav1.StatusReasonTimeout:
		return err
	case errors.Is(err, dispatch.ErrManyTransfers):
		return tooMany("%s", err.Error())
	default:
		return unavailable("the session's runner can't be asked: %s", err.Error())
	}
	code, isKnown := codes[failed.Reason]
	switch {
	case failed.Reason == v1alpha1.ReasonFileChanged && asked.ifSHA256 != nil,
		failed.Reason == v1alpha1.ReasonFileNotFound && ptr.Deref(asked.ifSHA256, "") != "":
		code = http.StatusPreconditionFailed
	case failed.Reason == v1alpha1.ReasonFileChanged, failed.Reason == v1alpha1.ReasonFileExists && asked.ifSHA256 == nil:
		code = http.StatusConflict
	case !isKnown:
		code = http.StatusInternalServerError
	}
	return statusError(code, metav1.StatusReason(failed.Reason), nil, "%s", asked.message(failed))
}

// message says what a runner says of a call in the words of a request.
func (q *fileRequest) message(failed *dispatch.TransferError) string {
	switch {
	case failed.Reason == v1alpha1.ReasonIsDirectory && q.kind == wire.TransferRead:
		return "the path is a directory: ask for it with archive=tar"
	case failed.Reason == v1alpha1.ReasonIsDirectory && q.kind == wire.TransferDelete:
		return "the path is a directory, and only files are deleted here: use a call with the file operation Delete and recursive"
	case failed.Reason == v1alpha1.ReasonFileExists && q.kind == wire.TransferWrite:
		return "the file exists already: leave out If-None-Match to replace it"
	default:
		return failed.Message
	}
}
