package faults

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"

	"toolcall.dev/operator/api/v1alpha1"
)

// Sizes of the streams that calls write, in bytes; some are more than is kept.
var (
	stdoutSizes = []int{0, 100, 3000, kept, kept + 1, 40000}
	stderrSizes = []int{0, 500, 5000, 20000}
)

// expected is a call, and all that its command writes.
type expected struct {
	name           string
	sleep          time.Duration
	stdout, stderr string
	// session is the call's, nil for a call with a pod of its own.
	session *v1alpha1.ToolSession
}

func newExpected(prefix string, i int, sleep time.Duration) *expected {
	name := fmt.Sprintf("%s-%03d", prefix, i)
	return &expected{
		name: name, sleep: sleep,
		stdout: text(name+".out", stdoutSizes[i%len(stdoutSizes)]),
		stderr: text(name+".err", stderrSizes[i%len(stderrSizes)]),
	}
}

// text is what `seq -f 'PREFIX.%06.0f' 1 N | head -c SIZE` prints.
func text(prefix string, size int) string {
	var b strings.Builder
	for i := 1; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%s.%06d\n", prefix, i)
	}
	return b.String()[:size]
}

// command writes the ledger first, one stream before it sleeps and the other after.
func (e *expected) command() string {
	stream := func(name, all string) string {
		lines := len(all)/len(fmt.Sprintf("%s.%s.%06d\n", e.name, name, 1)) + 1
		return fmt.Sprintf("seq -f '%s.%s.%%06.0f' 1 %d | head -c %d", e.name, name, lines, len(all))
	}
	return fmt.Sprintf("printf '%%s %%s\\n' %s $RANDOM$RANDOM$RANDOM >> %s/lines\n%s\nsleep %.1f\n%s >&2\n",
		e.name, ledgerMount, stream("out", e.stdout), e.sleep.Seconds(), stream("err", e.stderr))
}

func (e *expected) object(namespace string) *v1alpha1.ToolCall {
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: e.name},
		Spec: v1alpha1.ToolCallSpec{
			Shell: &v1alpha1.ShellAction{Command: e.command()}, TimeoutSeconds: ptr.To(int32(300)),
		},
	}
	if e.session != nil {
		call.Spec.SessionRef = &v1alpha1.SessionReference{Name: e.session.Name, UID: string(e.session.UID)}
		// Until the test has judged it.
		call.Spec.TTLSecondsAfterFinished = ptr.To(int32(7200))
	}
	return call
}

// load is calls in flight, and what was last seen of each.
type load struct {
	bed   *bed
	calls []*expected
	// next is the session of the call that is created after the fault; nil for one with a pod of its own.
	next *v1alpha1.ToolSession

	mu   sync.Mutex
	seen map[string]*v1alpha1.ToolCall
	// ended is when a call was first seen to be finished.
	ended map[string]time.Time
	// endedIn counts the calls that have ended by their session.
	endedIn map[string]int
	// broken are observations that may never be made.
	broken []string
}

// newLoad creates calls that sleep from a second up to longest, and follows them until the test ends.
func (b *bed) newLoad(t *testing.T, count int, longest time.Duration) *load {
	t.Helper()
	l := newFollowed(t, b)
	for i := range count {
		sleep := time.Second + time.Duration(i*7919%count)*(longest-time.Second)/time.Duration(count)
		l.calls = append(l.calls, newExpected("call", i, sleep))
	}
	l.create(t, l.calls...)
	return l
}

// newFollowed is a load without calls, which follows those of the bed until the test ends.
func newFollowed(t *testing.T, b *bed) *load {
	t.Helper()
	l := &load{bed: b, seen: map[string]*v1alpha1.ToolCall{}, ended: map[string]time.Time{}, endedIn: map[string]int{}}
	l.inBackground(t, l.follow)
	return l
}

// inBackground does something until the test ends.
func (l *load) inBackground(t *testing.T, do func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var doing sync.WaitGroup
	doing.Go(func() { do(ctx) })
	t.Cleanup(func() { cancel(); doing.Wait() })
}

func (l *load) create(t *testing.T, calls ...*expected) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for _, call := range calls {
		group.Go(func() error { return l.bed.client.Create(t.Context(), call.object(l.bed.namespace)) })
	}
	must(t, group.Wait())
}

// follow watches the namespace's calls, through every outage of the API server. A watch without a resourceVersion
// begins with all that is there.
func (l *load) follow(ctx context.Context) {
	for ctx.Err() == nil {
		w, err := l.bed.client.Watch(ctx, &v1alpha1.ToolCallList{}, client.InNamespace(l.bed.namespace))
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for event := range w.ResultChan() {
			if call, ok := event.Object.(*v1alpha1.ToolCall); ok {
				l.saw(call)
			}
		}
		w.Stop()
	}
}

// saw keeps what is new of a call. A finished one must stay as it is.
func (l *load) saw(call *v1alpha1.ToolCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if call.Spec.EnvironmentRef != nil {
		return // A test's own, beside the load.
	}
	before := l.seen[call.Name]
	l.seen[call.Name] = call
	if before != nil && before.Status.Phase.Terminal() && outcomeOf(before) != outcomeOf(call) {
		l.broken = append(l.broken, fmt.Sprintf("call %s changed after it had ended: %+v, now %+v", call.Name, outcomeOf(before), outcomeOf(call)))
	}
	if _, known := l.ended[call.Name]; call.Status.Phase.Terminal() && !known {
		l.ended[call.Name] = time.Now()
		if ref := call.Spec.SessionRef; ref != nil {
			l.endedIn[ref.Name]++
		}
	}
}

// outcome is what a finished call keeps.
type outcome struct {
	phase          v1alpha1.Phase
	reason, stdout string
}

func outcomeOf(call *v1alpha1.ToolCall) outcome {
	return outcome{call.Status.Phase, call.Status.Reason, call.Status.Stdout}
}

// count says how many calls satisfy is, as last seen.
func (l *load) count(is func(*v1alpha1.ToolCall) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, call := range l.seen {
		if is(call) {
			n++
		}
	}
	return n
}

func begun(call *v1alpha1.ToolCall) bool { return call.Status.Runner != nil || hasEnded(call) }

func hasEnded(call *v1alpha1.ToolCall) bool { return call.Status.Phase.Terminal() }

// awaitBegun waits until that many calls have their runner.
func (l *load) awaitBegun(t *testing.T, count int) {
	t.Helper()
	await(t, fmt.Sprintf("start of %d calls", count), func(context.Context) (bool, error) { return l.count(begun) >= count, nil })
}

func (l *load) snapshot() (seen map[string]*v1alpha1.ToolCall, ended map[string]time.Time, broken []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.seen), maps.Clone(l.ended), l.broken
}

// recover waits, after a fault, for the end of all calls in flight, and of one that is created now.
func (l *load) recover(t *testing.T, over time.Time) recovery {
	t.Helper()
	first := newExpected("after", 0, 0)
	first.session = l.next
	await(t, "API server that takes a call", func(ctx context.Context) (bool, error) {
		err := l.bed.client.Create(ctx, first.object(l.bed.namespace))
		return err == nil || apierrors.IsAlreadyExists(err), err
	})
	l.calls = append(l.calls, first)
	await(t, "end of every call", func(context.Context) (bool, error) {
		if ended := l.count(hasEnded); ended < len(l.calls) {
			_, _, broken := l.snapshot()
			return false, fmt.Errorf("%d of %d have ended; seen what may not be: %q", ended, len(l.calls), broken)
		}
		return true, nil
	})
	_, ended, _ := l.snapshot()
	r := recovery{firstCall: ended[first.name].Sub(over)}
	for _, at := range ended {
		r.all = max(r.all, at.Sub(over))
	}
	return r
}

// recovery is how long after a fault things took.
type recovery struct{ firstCall, all time.Duration }
