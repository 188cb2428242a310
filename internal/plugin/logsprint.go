package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// endedBefore reports whether a call ended before a time.
func endedBefore(call *v1alpha1.ToolCall, limit time.Time) bool {
	finished := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionFinished)
	return finished != nil && finished.Status == metav1.ConditionTrue && finished.LastTransitionTime.Time.Before(limit)
}

// printer prints the streams of a call.
type printer struct {
	*cli
	cluster *cluster
	call    *v1alpha1.ToolCall
	options *logsOptions
	// mu keeps the streams' pieces and the notes apart where they go to one place. All calls share it.
	mu *sync.Mutex
	// prefixed says that each line begins with the name of the call.
	prefixed bool
}

// run prints the output of the call, or says why there is none.
func (p *printer) run(ctx context.Context) error {
	if err := p.print(ctx); err != nil {
		return err
	}
	return p.explainSilence(ctx)
}

// explainSilence says why a call has no output that has nothing else to say.
func (p *printer) explainSilence(ctx context.Context) error {
	call := p.call
	if p.options.following {
		var err error
		if call, err = p.cluster.getCall(ctx, call.Name); apierrors.IsNotFound(err) {
			return nil // It was deleted at its end, after all of its output.
		} else if err != nil {
			return err
		}
	}
	switch s := &call.Status; {
	case s.Phase.Terminal() && s.Streams == nil:
		p.say("call %s has no recorded output: %s (%s): %s", call.Name, s.Phase, s.Reason, s.Message)
	case s.Phase == "" || s.Phase == v1alpha1.PhasePending:
		p.say("call %s has not started: to wait for it, run kubectl toolcall logs -f %s", call.Name, call.Name)
	}
	return nil
}

// print prints each stream to its place. Those that are followed are printed at the same time.
func (p *printer) print(ctx context.Context) error {
	streams := p.options.streams()
	errs := make([]error, len(streams))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for i, stream := range streams {
		running.Go(func() {
			if errs[i] = p.copy(ctx, stream); isLostReader(errs[i]) {
				cancel()
			}
		})
		if !p.options.following {
			running.Wait()
		}
	}
	running.Wait()
	p.mu.Lock()
	p.flush()
	p.mu.Unlock()
	var failed []error
	for i, err := range errs {
		switch {
		case isLostReader(err):
			return &exitError{code: codePipe}
		case err != nil:
			failed = append(failed, p.readError(streams[i], err))
		}
	}
	return errors.Join(failed...)
}

// lostReader says that nobody reads what is printed.
type lostReader struct{ error }

func isLostReader(err error) bool {
	var lost lostReader
	return errors.As(err, &lost)
}

func (p *printer) copy(ctx context.Context, stream output.Stream) error {
	to := p.Out
	if stream == output.Stderr {
		to = p.ErrOut
	}
	write := func(b []byte) error { return p.write(to, b) }
	if p.prefixed {
		lines := &prefixWriter{mu: p.mu, out: to, prefix: "[" + terminal.SafeLine(p.call.Name) + "] "}
		defer func() { _ = lines.end() }() // A failed write shows at the one before, or nobody reads the last line.
		write = func(b []byte) error {
			if _, err := lines.Write(b); err != nil {
				return lostReader{err}
			}
			return nil
		}
	}
	offset, err := p.begin(ctx, stream)
	if err != nil {
		return err
	}
	query := outputclient.Query{
		Namespace: p.call.Namespace, Name: p.call.Name, UID: p.call.UID, Stream: stream,
		Offset: offset, Limit: p.options.limit, Follow: p.options.following,
	}
	if !p.options.following {
		query.Patience = logsPatience
	}
	_, err = p.cluster.output.Copy(ctx, query, outputclient.Sink{
		Write: write,
		Missing: func(start, end int64) {
			p.note("%d bytes of %s, from offset %d on, were not kept", end-start, stream, start)
		},
		Retrying: func(err error) { p.note("%s can't be read at the moment, retrying: %s", stream, err) },
	})
	return err
}

// begin is the offset from which a stream is printed.
func (p *printer) begin(ctx context.Context, stream output.Stream) (int64, error) {
	hasOutput := p.call.Status.Streams != nil || p.call.Status.Phase == v1alpha1.PhaseRunning
	if p.options.tail < 0 || !hasOutput {
		return p.options.offset, nil
	}
	return p.cluster.tailOffset(ctx, p.call, stream, p.options.tail)
}

func (p *printer) write(to io.Writer, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := to.Write(b); err != nil {
		return lostReader{err}
	}
	return nil
}

func (p *printer) note(format string, args ...any) { p.say("note: "+format, args...) }

// say prints a message for the user, which holds names and texts that others chose.
func (p *printer) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.ErrOut, terminal.Safe(fmt.Sprintf(format, args...)))
}

// readError says what somebody can do who can't read a stream.
func (p *printer) readError(stream output.Stream, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("read %s: it needs permission to get toolcalls/log in the group subresources.toolcall.dev, which the ClusterRoles toolcall-viewer and toolcall-user grant, and for a call of a session to be the session's creator or to use it: %w", stream, err)
	case errors.Is(err, outputclient.ErrNotServed):
		return fmt.Errorf("read %s: %w; the status of the call has the first and the last part: kubectl toolcall describe %s", stream, err, p.call.Name)
	case strings.Contains(err.Error(), "not kept"):
		return fmt.Errorf("%w; the status of the call may have a part: kubectl toolcall describe %s", err, p.call.Name)
	default:
		return fmt.Errorf("read %s: %w", stream, err)
	}
}
