package follow_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

var resource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "toolcalls"}

// failingReads lets the first n reads of the call fail.
func failingReads(calls client.WithWatch, n int32, err error) (client.WithWatch, *atomic.Int32) {
	reads := &atomic.Int32{}
	return interceptor.NewClient(calls, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if reads.Add(1) <= n {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
	}), reads
}

// Reads that fail for a moment delay the end, and are mentioned once.
func TestWaitRetriesFailedReads(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"an internal error":     apierrors.NewInternalError(errors.New("etcd is unavailable")),
		"an overloaded server":  apierrors.NewTooManyRequests("slow down", 0),
		"a timeout":             apierrors.NewTimeoutError("timeout", 0),
		"a missing endpoint":    apierrors.NewServiceUnavailable("no leader"),
		"a broken connection":   errors.New("read tcp: connection reset by peer"),
		"a conflict, of a kind": apierrors.NewConflict(resource, "x", errors.New("conflict")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			call, r := f.create(), newRecorder()
			f.finish(call, "out", "")
			calls, reads := failingReads(f.calls, 3, err)
			end := result(t, f.wait(t.Context(), follow.Clients{Calls: calls}, call, r.watcher()))
			if end.err != nil || end.call.Status.Stdout != "out" || reads.Load() < 4 {
				t.Errorf("got %v after %d reads", end.err, reads.Load())
			}
			if len(r.notices) != 1 || !strings.Contains(r.notices[0], "retrying") {
				t.Errorf("notices %q", r.notices)
			}
		})
	}
}

// Errors that no retry can help end the wait at once.
func TestWaitGivesUpOnFinalErrors(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"no permission":        apierrors.NewForbidden(resource, "x", errors.New("no")),
		"an expired token":     apierrors.NewUnauthorized("expired"),
		"an impossible verb":   apierrors.NewMethodNotSupported(resource, "watch"),
		"an impossible object": apierrors.NewBadRequest("no"),
		"no such call":         apierrors.NewNotFound(resource, "x"),
		"no such kind":         &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: resource.Group, Kind: "ToolCall"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			calls, reads := failingReads(f.calls, 1000, err)
			end := result(t, f.wait(t.Context(), follow.Clients{Calls: calls}, f.create(), follow.Watcher{}))
			if !errors.Is(end.err, err) || reads.Load() != 1 {
				t.Errorf("got %v after %d reads", end.err, reads.Load())
			}
		})
	}
}

// failingWatches lets every watch fail, and counts them.
type failingWatches struct {
	client.WithWatch
	watches int
}

func (f *failingWatches) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	f.watches++
	return nil, errors.New("connection refused")
}

// In an outage, the delay between two tries grows to 5 s and stays there.
func TestWaitBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := &failingWatches{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := newRecorder()
		_, err := follow.Clients{Calls: calls}.Wait(ctx, client.ObjectKey{Namespace: "n", Name: "c"}, r.watcher())
		if !errors.Is(err, context.DeadlineExceeded) || len(r.notices) != 1 {
			t.Errorf("got %v, notices %q", err, r.notices)
		}
		// 0.2, 0.4, 0.8, 1.6 and 3.2 s, then every 5 s.
		if want := 6 + (3600-6)/5; calls.watches < want-1 || calls.watches > want+1 {
			t.Errorf("%d watches in an hour, want %d", calls.watches, want)
		}
	})
}

// endedWatches are watches that end without an error, while the call doesn't change.
type endedWatches struct {
	client.WithWatch
	lasts   time.Duration
	watches int
}

func (e *endedWatches) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	e.watches++
	time.Sleep(e.lasts)
	w := watch.NewFakeWithChanSize(1, false)
	w.Stop()
	return w, nil
}

func (e *endedWatches) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.(*v1alpha1.ToolCall).ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u", ResourceVersion: "1"}
	return nil
}

// A watch that ends in good order is restarted after a pause, and each state is reported once. The API server ends a watch after some
// minutes, a proxy perhaps at once.
func TestWaitRestartsEndedWatches(t *testing.T) {
	t.Parallel()
	for lasts, watches := range map[time.Duration]int{4 * time.Minute: 15, 0: 18_000} {
		synctest.Test(t, func(t *testing.T) {
			calls := &endedWatches{lasts: lasts}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			r := newRecorder()
			_, err := follow.Clients{Calls: calls}.Wait(ctx, client.ObjectKey{Namespace: "n", Name: "c"}, r.watcher())
			if !errors.Is(err, context.DeadlineExceeded) || calls.watches > watches+1 || calls.watches < watches-1 || len(r.phases) != 1 || len(r.notices) != 0 {
				t.Errorf("watches of %s: got %v, %d watches, %d states, notices %q", lasts, err, calls.watches, len(r.phases), r.notices)
			}
		})
	}
}

// Only the condition Finished ends a wait. Succeeded is Unknown or False before the call has finished.
func TestNoOtherConditionEndsAWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, r := f.create(), newRecorder()
	done := f.wait(t.Context(), f.clients(), call, r.watcher())
	until(t, "first state", r.changed)
	for _, status := range []metav1.ConditionStatus{metav1.ConditionUnknown, metav1.ConditionFalse, metav1.ConditionTrue} {
		f.patch(call, func(s *v1alpha1.ToolCallStatus) {
			for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionStarted, v1alpha1.ConditionSucceeded} {
				meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Test"})
			}
			finished := metav1.Condition{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionFalse, Reason: "Test"}
			if status == metav1.ConditionUnknown {
				finished.Status = metav1.ConditionUnknown
			}
			meta.SetStatusCondition(&s.Conditions, finished)
		})
		until(t, "state with Succeeded "+string(status), r.changed)
		if follow.Finished(call) {
			t.Errorf("Succeeded is %s, and the call counts as finished", status)
		}
	}
	select {
	case end := <-done:
		t.Fatalf("the wait ended: %v, %v", end.call, end.err)
	default:
	}
	f.patch(call, func(s *v1alpha1.ToolCallStatus) {
		s.Phase = v1alpha1.PhaseFailed
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionFalse, Reason: "Test"})
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: "Test"})
	})
	if end := result(t, done); end.err != nil || end.call.Status.Phase != v1alpha1.PhaseFailed {
		t.Errorf("got %v, %v", end.call, end.err)
	}
}

func TestClustersWithoutTheKind(t *testing.T) {
	t.Parallel()
	notServed := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "c", "404 page not found", 0, true)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"a kind that the client doesn't know": {&meta.NoKindMatchError{}, true},
		"a path that isn't served":            {notServed, true},
		"a 404 without details":               {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404}}, true},
		"a 404 of a list":                     {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404, Details: &metav1.StatusDetails{Kind: "toolcalls"}}}, true},
		"a call that doesn't exist":           {apierrors.NewNotFound(resource, "c"), false},
		"no permission":                       {apierrors.NewForbidden(resource, "c", nil), false},
		"another error":                       {errors.New("connection refused"), false},
		"none":                                {nil, false},
	} {
		if got := follow.NotInstalled(c.err); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Errors of a create request say what the user can do.
func TestErrorsOfACreateRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, c := range map[string]struct {
		err    error
		want   []string
		dryRun bool
	}{
		"no permission":       {err: apierrors.NewForbidden(resource, "c", errors.New(`User "u" cannot create resource "toolcalls"`)), want: []string{"the ClusterRole toolcall-user grants permission"}},
		"a full quota":        {err: apierrors.NewForbidden(resource, "c", errors.New("exceeded quota: q")), want: []string{": toolcalls.toolcall.dev \"c\" is forbidden: exceeded quota: q", "create call " + f.namespace + "/call-"}},
		"no such kind":        {err: &meta.NoKindMatchError{}, want: []string{"this cluster has no ToolCall kind", "--context"}},
		"too large an object": {err: apierrors.NewRequestEntityTooLargeError("limit"), want: []string{"the API server rejected the call"}},
		"a lost response":     {err: errors.New("EOF"), want: []string{"unknown whether the call was created", f.namespace + "/call-"}},
		"no connection":       {err: &url.Error{Op: "Post", URL: "https://x", Err: syscall.ECONNREFUSED}, want: []string{"create call " + f.namespace + "/call-", "refused"}},
		"a lost dry run":      {err: errors.New("EOF"), want: []string{"create call " + f.namespace + "/call-"}, dryRun: true},
		"an overloaded one":   {err: apierrors.NewTooManyRequests("slow down", 1), want: []string{"create call " + f.namespace + "/call-"}},
	} {
		calls := interceptor.NewClient(f.calls, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return c.err },
		})
		clients := follow.Clients{Calls: calls}
		if c.dryRun {
			clients.CreateOptions = []client.CreateOption{client.DryRunAll}
		}
		_, err := clients.Create(t.Context(), &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace}})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in %v", name, want, err)
			}
		}
	}
}

// A request counts as unsent only if no connection was made for it, in both versions of HTTP.
func TestUnsent(t *testing.T) {
	t.Parallel()
	abort := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	first, second, gone := httptest.NewUnstartedServer(abort), httptest.NewUnstartedServer(abort), httptest.NewServer(abort)
	second.EnableHTTP2 = true
	first.StartTLS()
	second.StartTLS()
	t.Cleanup(first.Close)
	t.Cleanup(second.Close)
	gone.Close()
	for name, c := range map[string]struct {
		config rest.Config
		unsent bool
	}{
		"a connection of HTTP/1.1 that breaks": {rest.Config{Host: first.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, false},
		"a connection of HTTP/2 that breaks":   {rest.Config{Host: second.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, false},
		"a port that nobody listens at":        {rest.Config{Host: gone.URL}, true},
		"a certificate of another authority":   {rest.Config{Host: second.URL}, true},
		"a name that doesn't exist":            {rest.Config{Host: "http://none.invalid"}, true},
	} {
		transport, err := rest.HTTPClientFor(&c.config)
		must(t, err)
		ctx, unsent := follow.Unsent(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.Host, strings.NewReader("{}"))
		must(t, err)
		answer, err := transport.Do(request)
		if err == nil {
			t.Fatalf("%s: %s", name, answer.Status)
		}
		if got := unsent(err); got != c.unsent {
			t.Errorf("%s: unsent %t: %v", name, got, err)
		}
	}
}

// Generated names are valid, whatever the prefix, and keep it as far as it fits.
func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var names []string
	for _, prefix := range []string{"", "run-", strings.Repeat("x", 200)} {
		call, err := f.clients().Create(t.Context(), &v1alpha1.ToolCall{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: prefix},
			Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "true"}},
		})
		must(t, err)
		if want := prefix[:min(len(prefix), 63)]; !strings.HasPrefix(call.Name, want) || len(call.Name) > 71 {
			t.Errorf("%q became %s", prefix, call.Name)
		}
		names = append(names, call.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != 3 {
		t.Errorf("names %q", names)
	}
}
