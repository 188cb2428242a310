package subresources

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
)

// oneCall is an API server with a call, which changes when the time comes.
type oneCall struct {
	client.Reader
	read func() (*v1alpha1.ToolCall, error)
}

func (o oneCall) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	call, err := o.read()
	if err == nil {
		call.DeepCopyInto(into.(*v1alpha1.ToolCall))
	}
	return err
}

// nothingCached is a cache without objects.
type nothingCached struct{ client.Reader }

func (nothingCached) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, "")
}

// broken is a source that fails, and a reader that does.
type broken struct{ notStarted }

var errBroken = errors.New("broken")

func (broken) Open(context.Context, output.Key) (output.Reader, error) { return nil, errBroken }
func (broken) ReadAt(context.Context, []byte, int64) (int, error)      { return 0, errBroken }

// followFor is how long a follow lasts whose stream broke, when the call is as read says.
func followFor(t *testing.T, read func() (*v1alpha1.ToolCall, error)) time.Duration {
	t.Helper()
	w := httptest.NewRecorder()
	a := &answer{
		logs: &logs{
			calls: &calls{live: oneCall{read: read}, cached: nothingCached{}, stored: cache.NewLRUExpireCache(1)}, sources: []output.Source{broken{}},
			clock: clock.RealClock{},
		},
		exchange: exchangeBy("u", w, httptest.NewRequest(http.MethodGet, "/", nil)), call: &v1alpha1.ToolCall{},
		query: &logRequest{stream: output.Stdout, limit: unlimited, follow: true},
	}
	began := time.Now()
	if err := a.follow(t.Context(), broken{}); err != nil || w.Code != http.StatusOK || w.Body.Len() > 0 {
		t.Errorf("%v, %d, %q", err, w.Code, w.Body)
	}
	return time.Since(began)
}

func TestAFollowWaitsForAStreamThatIsAway(t *testing.T) {
	t.Parallel()
	after := func(d time.Duration, then error) func() (*v1alpha1.ToolCall, error) {
		end := time.Now().Add(d)
		return func() (*v1alpha1.ToolCall, error) {
			call := &v1alpha1.ToolCall{}
			call.Status.Phase = v1alpha1.PhaseRunning
			if time.Now().Before(end) {
				return call, nil
			}
			call.Status.Phase = v1alpha1.PhaseFailed
			return call, then
		}
	}
	for name, tc := range map[string]struct {
		runs time.Duration
		then error
		want time.Duration
	}{
		"the call has ended long ago":      {0, nil, maxLost},
		"the call runs for long, and ends": {20 * time.Minute, nil, 20 * time.Minute},
		"the call runs for too long":       {time.Hour, nil, followTime},
		"the call is deleted":              {time.Minute, apierrors.NewNotFound(schema.GroupResource{}, "call"), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := followFor(t, after(tc.runs, tc.then)); got < tc.want || got > tc.want+2*maxReopen {
					t.Errorf("the follow lasted %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// another is a source that has another stream than the call's status says.
type another struct{ notStarted }

func (another) Open(context.Context, output.Key) (output.Reader, error) { return another{}, nil }
func (another) Info() output.Info {
	return output.Info{Bytes: 5, Complete: true, SHA256: "other"}
}
func (another) ReadAt(_ context.Context, p []byte, offset int64) (int, error) {
	if offset >= 5 {
		return 0, io.EOF
	}
	return copy(p, "other"[offset:]), nil
}

// What a follow goes on with is held to the status, as what it begins with.
func TestAFollowIsNotHandedAnotherStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		call := &v1alpha1.ToolCall{}
		call.Status.Phase, call.Status.Streams = v1alpha1.PhaseSucceeded, &v1alpha1.StreamsStatus{}
		call.Status.Streams.Stdout = v1alpha1.StreamStatus{Bytes: 5, SHA256: "own", Truncated: true, State: v1alpha1.StreamComplete}
		w := httptest.NewRecorder()
		a := &answer{
			logs: &logs{
				calls:  &calls{live: oneCall{read: func() (*v1alpha1.ToolCall, error) { return call, nil }}, cached: nothingCached{}, stored: cache.NewLRUExpireCache(1)},
				stored: []output.Source{another{}}, clock: clock.RealClock{},
			},
			exchange: exchangeBy("u", w, httptest.NewRequest(http.MethodGet, "/", nil)), call: slim(call),
			query: &logRequest{stream: output.Stdout, limit: unlimited, follow: true},
		}
		if err := a.follow(t.Context(), broken{}); err != nil || w.Body.Len() > 0 {
			t.Errorf("%v, %q", err, w.Body)
		}
	})
}
