package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/standalone"
)

const (
	crowdNamespace = "bench-crowd"
	// crowdProbes is how many calls of one session are timed, one at a time, alone and in the crowd.
	crowdProbes = 300
	// heldPrefix begins the names of calls whose commands go on until their session ends.
	heldPrefix = "held-"
)

// crowdResult says what sessions that do nothing, and calls that wait, cost others.
type crowdResult struct {
	Idle    int `json:"idleSessions"`
	Waiting int `json:"waitingCalls"`
	// Alone are the times of a session's calls before, Beside beside the idle sessions, Behind beside the waiting calls too.
	Alone  figures.Summary `json:"alone"`
	Beside figures.Summary `json:"besideIdle"`
	Behind figures.Summary `json:"besideWaiting"`
	// SessionKiB and CallKiB are the operator's live heap for each.
	SessionKiB float64 `json:"kibPerIdleSession"`
	CallKiB    float64 `json:"kibPerWaitingCall"`
}

// crowd measures calls of one session alone, beside many idle sessions, and beside a long line of calls of another session,
// too, of the same requester.
func (b *bench) crowd(ctx context.Context) (err error) {
	if err := b.ensureManager(ctx); err != nil {
		return err
	}
	n, err := startNode(ctx, b.client, crowdNamespace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := b.makeSpace(ctx, crowdNamespace, 0); err != nil {
		return err
	}
	if err := cluster.Create(ctx, b.client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: standalone.NodeName}}); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	r := &crowdResult{Idle: b.idleSessions, Waiting: b.waiting}
	probed, err := b.openSession(ctx, "probed")
	if err != nil {
		return err
	}
	if r.Alone, err = b.probe(ctx, probed, "alone"); err != nil {
		return err
	}
	before, err := b.liveHeap(ctx)
	if err != nil {
		return err
	}
	b.say("crowd: %d idle sessions", b.idleSessions)
	err = cluster.Spread(ctx, b.idleSessions, 50, func(ctx context.Context, i int) error {
		_, err := b.openSession(ctx, fmt.Sprintf("idle-%05d", i))
		return err
	})
	if err != nil {
		return err
	}
	if err := cluster.Pause(ctx, settleTime); err != nil {
		return err
	}
	between, err := b.liveHeap(ctx)
	if err != nil {
		return err
	}
	r.SessionKiB = (between - before) * 1024 / float64(b.idleSessions)
	if r.Beside, err = b.probe(ctx, probed, "beside"); err != nil {
		return err
	}
	b.say("crowd: %d calls that wait in one session", b.waiting)
	if err := b.holdLine(ctx); err != nil {
		return err
	}
	after, err := b.liveHeap(ctx)
	if err != nil {
		return err
	}
	r.CallKiB = (after - between) * 1024 / float64(b.waiting)
	if r.Behind, err = b.probe(ctx, probed, "behind"); err != nil {
		return err
	}
	b.report.Crowd = r
	return nil
}

// openSession creates a session and waits until it takes calls.
func (b *bench) openSession(ctx context.Context, name string) (*v1alpha1.ToolSession, error) {
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: crowdNamespace, Name: name}}
	session.Spec.EnvironmentRef, session.Spec.IdleTimeoutSeconds = &v1alpha1.LocalReference{Name: cluster.EnvironmentName}, ptr.To(int32(0))
	if err := cluster.Create(ctx, b.client, session); err != nil {
		return nil, err
	}
	err := cluster.Eventually(ctx, "session "+name+" to be ready", func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(session), session)
		if err == nil && session.Status.Phase == v1alpha1.SessionEnded {
			err = fmt.Errorf("it ended: %s: %s", session.Status.Reason, session.Status.Message)
		}
		return session.Status.Phase == v1alpha1.SessionReady, err
	})
	return session, err
}

// inSession is a call of a session.
func inSession(session *v1alpha1.ToolSession) func(metav1.ObjectMeta) client.Object {
	return func(at metav1.ObjectMeta) client.Object {
		call := cluster.NewCall(at).(*v1alpha1.ToolCall)
		call.Spec.EnvironmentRef, call.Spec.SessionRef = nil, &v1alpha1.SessionReference{Name: session.Name, UID: string(session.UID)}
		return call
	}
}

// probe times calls of a session, one at a time.
func (b *bench) probe(ctx context.Context, session *v1alpha1.ToolSession, prefix string) (figures.Summary, error) {
	subject := cluster.Calls(crowdNamespace)
	subject.New = inSession(session)
	t, err := cluster.Track(ctx, b.client, subject, nil)
	if err != nil {
		return figures.Summary{}, err
	}
	defer t.Stop()
	done, err := runCalls(ctx, t, prefix, crowdProbes, 1)
	if err != nil {
		return figures.Summary{}, err
	}
	return figures.Summarize(done.latencies), nil
}

// holdLine has one call of a session go on for ever, and many wait behind it.
func (b *bench) holdLine(ctx context.Context) error {
	busy, err := b.openSession(ctx, "busy")
	if err != nil {
		return err
	}
	make := inSession(busy)
	err = cluster.Spread(ctx, b.waiting+1, 50, func(ctx context.Context, i int) error {
		return b.client.Create(ctx, make(metav1.ObjectMeta{Namespace: crowdNamespace, Name: fmt.Sprintf("%s%06d", heldPrefix, i)}))
	})
	if err != nil {
		return fmt.Errorf("create the calls that wait: %w", err)
	}
	return cluster.Eventually(ctx, "the waiting calls to say so", func(ctx context.Context) (bool, error) {
		calls := &v1alpha1.ToolCallList{}
		if err := b.client.List(ctx, calls, client.InNamespace(crowdNamespace)); err != nil {
			return false, err
		}
		waiting := 0
		for i := range calls.Items {
			if strings.HasPrefix(calls.Items[i].Name, heldPrefix) && len(calls.Items[i].Status.Conditions) > 0 {
				waiting++
			}
		}
		return waiting == b.waiting+1, nil
	})
}

// liveHeap is what the operator's heap holds after a collection, in MiB.
func (b *bench) liveHeap(ctx context.Context) (float64, error) {
	folder, err := os.MkdirTemp("", "toolcall-heap-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	if err := b.process.Profile(ctx, folder, "heap", "heap?gc=1"); err != nil {
		return 0, err
	}
	memory, err := b.process.Memory(ctx)
	return memory.HeapAlloc, err
}

func (r *Report) crowdTable() *figures.Table {
	t := figures.NewTable("a session's calls, one at a time|p50 ms|p90 ms|p99 ms|operator's live heap for each, KiB")
	if c := r.Crowd; c != nil {
		t.Add("alone|%s|", c.Alone.Cells(1000, 1))
		t.Add("beside %d idle sessions|%s|%.1f", c.Idle, c.Beside.Cells(1000, 1), c.SessionKiB)
		t.Add("and %d calls that wait in one session|%s|%.1f", c.Waiting, c.Behind.Cells(1000, 1), c.CallKiB)
	}
	return t
}
