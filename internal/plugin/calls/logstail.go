package calls

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/plugin/cli"
)

// tailBlock is how many bytes are read at a time, from the end of a stream backwards, to find its last lines.
const tailBlock = 64 << 10

// headerBytes says how many bytes of a stream there are.
const headerBytes = "Toolcall-Bytes"

// tailOffset is the offset of the first of a stream's last lines, as far as they were kept.
func tailOffset(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall, stream output.Stream, lines int) (int64, error) {
	end, err := streamSize(ctx, c, call, stream)
	if err != nil || lines == 0 {
		return end, err
	}
	for left, size := lines, end; ; {
		start := max(0, end-tailBlock)
		block, begin, err := readBlock(ctx, c, call, stream, start, end)
		if err != nil {
			return 0, err
		}
		at, found := lastLines(block, &left, end == size)
		switch {
		case found:
			return begin + int64(at), nil
		case start == 0 || begin > start: // The stream begins here, or what is kept of it.
			return begin, nil
		}
		end = start
	}
}

// lastLines looks for the begin of the last lines in a block, and counts down the lines that are left to find. A newline at
// the end of the stream ends its last line.
func lastLines(block []byte, left *int, isEnd bool) (at int, found bool) {
	from := len(block)
	if isEnd && from > 0 && block[from-1] == '\n' {
		from--
	}
	for {
		newline := bytes.LastIndexByte(block[:from], '\n')
		if newline < 0 {
			return 0, false
		}
		if *left--; *left == 0 {
			return newline + 1, true
		}
		from = newline
	}
}

// streamSize is how many bytes a stream has by now.
func streamSize(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall, stream output.Stream) (int64, error) {
	request := &outputclient.Request{
		Method: http.MethodHead, Namespace: call.Namespace, Resource: "toolcalls", Name: call.Name, Subresource: "log",
		Query: url.Values{"stream": {string(stream)}, "uid": {string(call.UID)}},
	}
	backoff := outputclient.Backoff{Patience: cli.OutputPatience}
	for {
		response, err := c.Output.Do(ctx, request)
		if err == nil {
			_ = response.Body.Close()
			size, err := strconv.ParseInt(response.Header.Get(headerBytes), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("the answer doesn't say how long %s is: %w", stream, err)
			}
			return size, nil
		}
		if !outputclient.IsPassing(err) {
			return 0, err
		}
		if err := backoff.Wait(ctx, err); err != nil {
			return 0, err
		}
	}
}

// readBlock reads the bytes from start to end, or those behind the last part of them that wasn't kept, and says where they begin.
func readBlock(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall, stream output.Stream, start, end int64) (block []byte, begin int64, err error) {
	if start == end {
		return nil, start, nil
	}
	begin = start
	_, err = c.Output.Copy(ctx, outputclient.Query{
		Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: stream, Offset: start, Limit: end - start, Patience: cli.OutputPatience,
	}, outputclient.Sink{
		Write:   func(p []byte) error { block = append(block, p...); return nil },
		Missing: func(_, next int64) { block, begin = nil, next },
	})
	return block, begin, err
}
