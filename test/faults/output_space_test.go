package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/test/internal/stream"
)

const (
	// wholeStream is how much each call writes to each of its streams.
	wholeStream = 64 << 20
	storeName   = "toolcall-store"
)

// flow is calls that write to both of their streams for a while: one with a pod of its own and one in a session. Each stream has
// a reader that follows it over every break.
type flow struct {
	bed      *bed
	calls    []*v1alpha1.ToolCall
	readings []*reading
}

// reading is one reader of one stream. It may be looked into when done is closed.
type reading struct {
	*stream.Follower
	checker *stream.Checker
	sum     string
	done    chan struct{}
	err     error
}

// newFlow creates the calls, and has them read until the test ends.
func (b *bed) newFlow(t *testing.T, during time.Duration) *flow {
	t.Helper()
	b.awaitStore(t)
	session := &v1alpha1.ToolSession{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "writes"},
		Spec:       v1alpha1.ToolSessionSpec{IdleTimeoutSeconds: ptr.To(int32(0))},
	}
	must(t, b.client.Create(t.Context(), session))
	await(t, "session that takes calls", func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(session), session)
		return session.Status.Phase == v1alpha1.SessionReady, err
	})
	f := &flow{bed: b}
	for name, ref := range map[string]*v1alpha1.SessionReference{"cold": nil, "in-session": {Name: session.Name, UID: string(session.UID)}} {
		call := newWriter(b.namespace, name, during)
		call.Spec.SessionRef = ref
		must(t, b.client.Create(t.Context(), call))
		f.calls = append(f.calls, call)
		f.readings = append(f.readings, b.read(t, call)...)
	}
	return f
}

func writtenBy(namespace, name string) stream.Written {
	return stream.Written{Seed: namespace + "/" + name, Blocks: wholeStream / stream.BlockSize}
}

// newWriter is a call that writes its line into the ledger, and then its streams.
func newWriter(namespace, name string, during time.Duration) *v1alpha1.ToolCall {
	line := fmt.Sprintf("with open(%q, \"a\") as ledger:\n    ledger.write(\"%s x\\n\")\n", ledgerMount+"/lines", name)
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ToolCallSpec{
			Code:                    &v1alpha1.CodeAction{Language: "python", Source: line + writtenBy(namespace, name).Python(during)},
			TimeoutSeconds:          ptr.To(int32(300)),
			TTLSecondsAfterFinished: ptr.To(int32(7200)),
		},
	}
}

// read has both streams of a call followed from their start.
func (b *bed) read(t *testing.T, call *v1alpha1.ToolCall) (all []*reading) {
	t.Helper()
	c, err := stream.NewClient(b.config)
	must(t, err)
	written := writtenBy(call.Namespace, call.Name)
	for _, of := range []output.Stream{output.Stdout, output.Stderr} {
		r := &reading{checker: stream.NewChecker(written.Reader(of)), sum: written.SHA256(of), done: make(chan struct{})}
		r.Follower = &stream.Follower{
			Client: c, To: r.checker, Log: stream.Log{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: of},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		go func() {
			defer cancel()
			defer close(r.done)
			r.err = r.Run(ctx)
		}()
		t.Cleanup(func() { <-r.done })
		all = append(all, r)
	}
	return all
}

// verdict says what is wrong with what was read; nil when every byte came once, in order.
func (r *reading) verdict() error {
	<-r.done
	switch {
	case r.err != nil:
		return r.err
	case r.SHA256 != r.sum:
		return fmt.Errorf("%s of call %s has the hash %q, not %s", r.Log.Stream, r.Log.Name, r.SHA256, r.sum)
	default:
		return r.checker.Rest()
	}
}

// awaitBytes waits until each reader has so many.
func (f *flow) awaitBytes(t *testing.T, bytes int64) {
	t.Helper()
	await(t, fmt.Sprintf("first %d bytes of each stream", bytes), func(context.Context) (bool, error) {
		for _, r := range f.readings {
			if r.At() < bytes {
				return false, fmt.Errorf("%d bytes of %s of call %s have come, after %d breaks", r.At(), r.Log.Stream, r.Log.Name, r.Breaks())
			}
		}
		return true, nil
	})
}

// awaitEnded waits for the end of every call, whatever is broken meanwhile.
func (f *flow) awaitEnded(t *testing.T) {
	t.Helper()
	await(t, "end of every call that writes", func(ctx context.Context) (bool, error) {
		for _, call := range f.calls {
			if err := f.bed.client.Get(ctx, client.ObjectKeyFromObject(call), call); err != nil || !hasEnded(call) {
				return false, err
			}
		}
		return true, nil
	})
}

// verify wants every byte of every stream to have come once and in order, to be there once more after the pods are gone, and the
// statuses to say the same.
func (f *flow) verify(t *testing.T, fault string, over time.Time) {
	t.Helper()
	f.awaitEnded(t)
	row := row{Fault: "output: " + fault, Calls: len(f.calls), Ends: map[string]int{}}
	wrong := func(format string, args ...any) {
		row.Wrong++
		t.Errorf(format, args...)
	}
	for _, r := range f.readings {
		if err := r.verdict(); err != nil {
			wrong("while it was written: %v", err)
		}
		t.Logf("%s of call %s: %d bytes over %d breaks", r.Log.Stream, r.Log.Name, r.At(), r.Breaks())
	}
	row.AllSeconds = time.Since(over).Seconds()
	starts := f.bed.starts(t)
	for _, call := range f.calls {
		row.Ends[call.Status.Reason]++
		if starts[call.Name] != 1 {
			row.RanTwice++
			t.Errorf("the command of call %s started %d times", call.Name, starts[call.Name])
		}
		f.judge(call, wrong)
		f.bed.awaitPodEnded(t, call)
		for _, again := range f.bed.read(t, call) {
			if err := again.verdict(); err != nil {
				wrong("after the end: %v", err)
			}
		}
	}
	record(t, row)
}

func (f *flow) judge(call *v1alpha1.ToolCall, wrong func(string, ...any)) {
	s := &call.Status
	if s.Phase != v1alpha1.PhaseSucceeded || s.Streams == nil {
		wrong("call %s ended %s: %s", call.Name, s.Reason, s.Message)
		return
	}
	written := writtenBy(call.Namespace, call.Name)
	for of, about := range map[output.Stream]v1alpha1.StreamStatus{output.Stdout: s.Streams.Stdout, output.Stderr: s.Streams.Stderr} {
		if about.Bytes != written.Bytes() || about.SHA256 != written.SHA256(of) {
			wrong("%s of call %s is said to be %+v", of, call.Name, about)
		}
	}
}

// awaitPodEnded waits until a call's own pod has nothing left to give away. A session's stays.
func (b *bed) awaitPodEnded(t *testing.T, call *v1alpha1.ToolCall) {
	t.Helper()
	if call.Spec.SessionRef != nil {
		return
	}
	await(t, "end of the pod of call "+call.Name, func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{}
		err := b.client.Get(ctx, client.ObjectKey{Namespace: call.Namespace, Name: call.Status.Pod}, pod)
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		return ended || err != nil && client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err)
	})
}

// awaitStore waits until the output store takes requests.
func (s *suite) awaitStore(t *testing.T) {
	t.Helper()
	await(t, "ready output store (hack/deploy_store.sh installs it)", func(ctx context.Context) (bool, error) {
		store, err := s.clients.AppsV1().StatefulSets(operatorNamespace).Get(ctx, storeName, metav1.GetOptions{})
		return err == nil && store.Status.ReadyReplicas > 0, err
	})
}

// scaleStore has the store stopped or started, and waits until it is so.
func (s *suite) scaleStore(t *testing.T, replicas int32) {
	t.Helper()
	stores := s.clients.AppsV1().StatefulSets(operatorNamespace)
	await(t, fmt.Sprintf("output store of %d replicas", replicas), func(ctx context.Context) (bool, error) {
		scale, err := stores.GetScale(ctx, storeName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if scale.Spec.Replicas != replicas {
			scale.Spec.Replicas = replicas
			_, err = stores.UpdateScale(ctx, storeName, scale, metav1.UpdateOptions{})
			return false, err
		}
		store, err := stores.Get(ctx, storeName, metav1.GetOptions{})
		return err == nil && store.Status.ObservedGeneration >= store.Generation && store.Status.Replicas == replicas && store.Status.ReadyReplicas == replicas, err
	})
}
