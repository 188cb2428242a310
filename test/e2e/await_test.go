package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
)

// await watches the objects that opts select until one of them satisfies done. It is told of deletions too:
// gone is true then.
func (s *suite) await(t *testing.T, what string, list client.ObjectList, done func(o client.Object, gone bool) bool, opts ...client.ListOption) client.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		w, err := s.client.Watch(ctx, list, opts...)
		if err != nil {
			t.Fatalf("watch for %s: %v", what, err)
		}
		found := search(ctx, w, done)
		w.Stop()
		if found != nil {
			return found
		}
	}
	t.Fatalf("no %s after %s", what, patience)
	return nil
}

// search ends with what was found, or with nothing when the watch or the context does. A watch without a
// resourceVersion begins with all that is there.
func search(ctx context.Context, w watch.Interface, done func(client.Object, bool) bool) client.Object {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if o, isObject := event.Object.(client.Object); isObject && done(o, event.Type == watch.Deleted) {
				return o
			}
		}
	}
}

func named(o client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(o.GetNamespace()), client.MatchingFieldsSelector{
		Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.GetName()),
	}}
}

// awaitCall waits until the call satisfies done. One that has ended will not any more, if it doesn't then.
func (s *suite) awaitCall(t *testing.T, call *v1alpha1.ToolCall, what string, done func(*v1alpha1.ToolCall) bool) *v1alpha1.ToolCall {
	t.Helper()
	found := s.await(t, what+" of call "+call.Name, &v1alpha1.ToolCallList{}, func(o client.Object, gone bool) bool {
		c, ok := o.(*v1alpha1.ToolCall)
		return ok && !gone && c.UID == call.UID && (done(c) || c.Status.Phase.Terminal())
	}, named(call)...).(*v1alpha1.ToolCall)
	if !done(found) {
		t.Fatalf("call %s ended without its %s: %s: %s", call.Name, what, found.Status.Reason, found.Status.Message)
	}
	return found
}

// awaitFinished waits for the end of the call, and until its output is in the store.
func (s *suite) awaitFinished(t *testing.T, call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	t.Helper()
	done := s.awaitCall(t, call, "end", func(c *v1alpha1.ToolCall) bool {
		return condition(c, v1alpha1.ConditionFinished) == metav1.ConditionTrue
	})
	if done.Status.OutputState == v1alpha1.OutputStoring {
		done = s.await(t, "stored output of call "+call.Name, &v1alpha1.ToolCallList{}, func(o client.Object, gone bool) bool {
			c, ok := o.(*v1alpha1.ToolCall)
			return ok && (gone || c.Status.OutputState != v1alpha1.OutputStoring)
		}, named(call)...).(*v1alpha1.ToolCall)
	}
	checkFinished(t, done)
	return done
}

func (s *suite) awaitPhase(t *testing.T, call *v1alpha1.ToolCall, phase v1alpha1.Phase) *v1alpha1.ToolCall {
	t.Helper()
	return s.awaitCall(t, call, "phase "+string(phase), func(c *v1alpha1.ToolCall) bool { return c.Status.Phase == phase })
}

// awaitGone waits until an object is no longer there. A watch would miss a deletion that came before it.
func (s *suite) awaitGone(t *testing.T, o client.Object) {
	t.Helper()
	err := poll(t.Context(), func(ctx context.Context) (bool, error) {
		err := s.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("%s isn't deleted: %v; of %s, deleted at %v, finalizers %v", o.GetName(), err, o.GetCreationTimestamp(), o.GetDeletionTimestamp(), o.GetFinalizers())
	}
}

// awaitTrue looks again and again, for what can't be watched.
func (s *suite) awaitTrue(t *testing.T, what string, look wait.ConditionWithContextFunc) {
	t.Helper()
	if err := poll(t.Context(), look); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func poll(ctx context.Context, look wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, look)
}

// awaitLine follows the call's output until a line appears: the command has come that far.
func (s *suite) awaitLine(t *testing.T, call *v1alpha1.ToolCall, line string) *v1alpha1.ToolCall {
	t.Helper()
	running := s.awaitCall(t, call, "start", func(c *v1alpha1.ToolCall) bool { return c.Status.Pod != "" })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reader, err := outputclient.New(s.config)
	must(t, err)
	errs := make(chan error, 2)
	for _, stream := range []output.Stream{output.Stdout, output.Stderr} {
		go func() { errs <- followToLine(ctx, reader, running, stream, line) }()
	}
	if first := <-errs; first != nil {
		if second := <-errs; second != nil {
			t.Fatalf("call %s didn't write %q: %v, %v", call.Name, line, first, second)
		}
	}
	return running
}

// followToLine follows a stream until a line appears in it.
func followToLine(ctx context.Context, reader *outputclient.Client, call *v1alpha1.ToolCall, stream output.Stream, line string) error {
	found := errors.New("the line is there")
	written := []byte("\n")
	query := outputclient.Query{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: stream, Follow: true}
	_, err := reader.Copy(ctx, query, outputclient.Sink{Write: func(p []byte) error {
		if written = append(written, p...); strings.Contains(string(written), "\n"+line+"\n") {
			return found
		}
		return nil
	}})
	if errors.Is(err, found) {
		return nil
	}
	return fmt.Errorf("%s ended, with %q: %w", stream, written, err)
}

// held is a command that waits for letGo: what a test does while a call runs takes as long as it takes.
const held = "until test -e /tmp/go; do sleep 0.1; done"

// letGo ends the wait of a call whose command is held.
func (s *suite) letGo(t *testing.T, call *v1alpha1.ToolCall) {
	t.Helper()
	s.awaitTrue(t, "way to let "+call.Name+" go", func(context.Context) (bool, error) {
		said, err := s.kubectl(t, "exec", "-n", call.Namespace, call.Status.Pod, "--", "touch", "/tmp/go")
		if err != nil {
			t.Logf("%v: %s", err, said)
		}
		return err == nil, nil
	})
}

// podLog is the whole log of the call's pod.
func (s *suite) podLog(t *testing.T, call *v1alpha1.ToolCall) string {
	t.Helper()
	var raw []byte
	// The runner may connect before the kubelet says that its container runs.
	s.awaitTrue(t, "the log of "+call.Status.Pod, func(ctx context.Context) (_ bool, err error) {
		raw, err = s.clients.CoreV1().Pods(call.Namespace).GetLogs(call.Status.Pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		return err == nil, nil
	})
	return string(raw)
}

// awaitEvent waits for an Event about the object whose reason and note are as given.
func (s *suite) awaitEvent(t *testing.T, about client.Object, reason, note string) *corev1.Event {
	t.Helper()
	found := s.await(t, "Event "+reason, &corev1.EventList{}, func(o client.Object, gone bool) bool {
		e, ok := o.(*corev1.Event)
		return ok && !gone && e.Reason == reason && strings.Contains(e.Message, note)
	}, client.InNamespace(about.GetNamespace()), client.MatchingFieldsSelector{
		Selector: fields.OneTermEqualSelector("involvedObject.uid", string(about.GetUID())),
	})
	return found.(*corev1.Event)
}

func isEnforced(o client.Object, gone bool) bool {
	quota, ok := o.(*corev1.ResourceQuota)
	return ok && !gone && len(quota.Status.Hard) > 0
}

// awaitReady waits for an environment's condition Ready.
func (sp *space) awaitReady(t *testing.T, environment string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: environment}}
	sp.await(t, environment+" Ready: "+string(status), &v1alpha1.ExecutionEnvironmentList{}, func(o client.Object, gone bool) bool {
		e, ok := o.(*v1alpha1.ExecutionEnvironment)
		if !ok || gone {
			return false
		}
		ready := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Status == status && ready.Reason == reason
	}, named(env)...)
}
