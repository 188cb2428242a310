package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// headerInputOffset has the offset of the next byte of standard input.
const headerInputOffset = "Toolcall-Input-Offset"

// maxInput bounds a part of standard input. That much is kept until it is confirmed, and no more is read.
const maxInput = 32 << 10

// Input names the standard input of a background call.
type Input struct{ Namespace, Session, Call string }

var (
	// ErrInputTaken says that another client sends to the same standard input.
	ErrInputTaken = errors.New("somebody else sends to the standard input of this call at the same time")
	// ErrInputClosed says that a call takes no standard input, or no more.
	ErrInputClosed = errors.New("the call takes no standard input any more")
)

// SendInput sends what it reads to a call's standard input until the end, which closes it. It begins behind what others have
// sent before. Each part is sent until it is confirmed: it arrives once, whatever breaks, as long as nobody else sends.
func (c *Client) SendInput(ctx context.Context, to Input, from io.Reader) error {
	s := &sending{client: c, to: to}
	// Nothing at offset 0 says where the next byte goes.
	if err := s.confirm(ctx, nil, false); err != nil {
		return err
	}
	buffer := make([]byte, maxInput)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if err := s.confirm(ctx, buffer[:n], false); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return s.confirm(ctx, nil, true)
		case err != nil:
			return fmt.Errorf("read standard input: %w", err)
		}
	}
}

// sending is standard input on its way.
type sending struct {
	client *Client
	to     Input
	// at is the offset of the next byte; placed says that it is what the API said.
	at      int64
	placed  bool
	backoff Backoff
}

// confirm sends a part until the API has all of it.
func (s *sending) confirm(ctx context.Context, part []byte, isEnd bool) error {
	end := s.at + int64(len(part))
	for isRepeated := false; ; isRepeated = true {
		next, err := s.post(ctx, part, isEnd)
		isConflict := code(err) == http.StatusConflict
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !isConflict && !IsPassing(err):
			return err
		case err != nil && !isConflict:
			if err := s.backoff.Wait(ctx, err); err != nil {
				return err
			}
			continue
		case isConflict && next < 0:
			return fmt.Errorf("%w: %w", ErrInputClosed, err)
		case !s.placed:
			s.placed, s.at = true, next
			return nil
		case next < s.at || next > end:
			return ErrInputTaken
		case isConflict && next == s.at && isEnd && isRepeated:
			// The first of the requests has closed it.
			return nil
		case isConflict && next == s.at:
			return fmt.Errorf("%w: %w", ErrInputClosed, err)
		}
		if next > s.at || err == nil {
			s.backoff.Progress()
		}
		part, s.at = part[next-s.at:], next
		if len(part) == 0 && err == nil || s.at == end && !isEnd {
			return nil
		}
		if err == nil {
			// The call's process takes less than was sent.
			if err := s.backoff.Wait(ctx, errEarlyEnd); err != nil {
				return err
			}
		}
	}
}

// post sends a part and returns the offset that the API says; -1 when it says none.
func (s *sending) post(ctx context.Context, part []byte, isEnd bool) (next int64, err error) {
	values := url.Values{"call": {s.to.Call}, "offset": {strconv.FormatInt(s.at, 10)}}
	if isEnd {
		values.Set("eof", "true")
	}
	response, err := s.client.Do(ctx, &Request{
		Method: http.MethodPost, Namespace: s.to.Namespace, Resource: "toolsessions", Name: s.to.Session, Subresource: "proxy/input",
		Query: values, Header: http.Header{"Content-Type": {"application/octet-stream"}}, Body: bytes.NewReader(part), Length: int64(len(part)),
	})
	var header http.Header
	var answer *Error
	switch {
	case err == nil:
		response.Body.Close()
		header = response.Header
	case errors.As(err, &answer):
		header = answer.Header
	default:
		return -1, err
	}
	n, failed := strconv.ParseUint(header.Get(headerInputOffset), 10, 62)
	if failed != nil {
		if err == nil {
			err = &protocolError{fmt.Errorf("the answer has no valid header %s", headerInputOffset)}
		}
		return -1, err
	}
	return int64(n), err
}
