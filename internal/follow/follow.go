// Package follow creates a call, follows it until it finishes, and cancels it. It creates and follows sessions too.
//
// Input is a client that can create, get, watch and patch calls and sessions, and a client that reads the output of calls.
// Wait passes every observed state of the call and the output of the command to its Watcher, and returns the finished
// call. WaitSession does the same for the states of a session.
//
// Invariants: Wait never waits for the API of outputs if the status has the whole output; each byte of a stream is delivered
// once, in its order, and a notice says which weren't kept; Wait restarts a broken watch and misses neither the end nor the
// deletion of the call; no goroutine outlives the function that started it.
//
// The package must not print, choose exit codes, or decide what may run.
package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	outputclient "toolcall.dev/operator/internal/output/client"
)

// ErrDeleted means that the call was deleted before it was observed to finish. The operator stops its process.
var ErrDeleted = errors.New("the call was deleted before it finished")

// ErrSessionDeleted means that the session was deleted while it was followed. Its calls end with it.
var ErrSessionDeleted = errors.New("the session was deleted")

// Clients access calls and their output.
type Clients struct {
	Calls client.WithWatch
	// Output reads what calls write. If it is nil, output is delivered at the end, from the status.
	Output *outputclient.Client
	// CreateOptions are those of requests that create objects.
	CreateOptions []client.CreateOption
}

// Watcher receives what happens, in order, one thing at a time. Functions may be nil.
type Watcher struct {
	// UID, if set, is that of the call: another call of the same name means that the call was deleted.
	UID types.UID

	// Changed receives each observed state of the call, including the last one.
	Changed func(call *v1alpha1.ToolCall)

	// Until, if set, ends the wait at the first state for which it returns true, though the call has not finished.
	Until func(call *v1alpha1.ToolCall) bool

	// Output receives what the command writes, while it runs if the aggregated API for output can be read.
	Output func(chunk []byte)

	// Errors, if set, receives standard error instead of Output.
	Errors func(chunk []byte)

	// AtEnd delivers all output when the call has finished.
	AtEnd bool

	// NoRemainder delivers at the end only what the status has: no more than that is asked for.
	NoRemainder bool

	// Notice receives a sentence for people: why there is no live output, or which output is missing at the end.
	Notice func(text string)
}

// Create creates the call. It generates the name from GenerateName itself, so that an error whose response was lost
// names the call that may exist.
func (c Clients) Create(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	return create(ctx, c, &callSubject, call)
}

// CreateSession creates the session in the same way.
func (c Clients) CreateSession(ctx context.Context, session *v1alpha1.ToolSession) (*v1alpha1.ToolSession, error) {
	return create(ctx, c, &sessionSubject, session)
}

func create[T client.Object](ctx context.Context, c Clients, of *subject[T], object T) (none T, err error) {
	created := object.DeepCopyObject().(T)
	if created.GetName() == "" {
		created.SetName(generatedName(created.GetGenerateName()))
	}
	ctx, unsent := Unsent(ctx)
	if err := c.Calls.Create(ctx, created, c.CreateOptions...); err != nil {
		isTrial := len((&client.CreateOptions{}).ApplyOptions(c.CreateOptions).DryRun) > 0
		return none, of.createError(created, err, !isTrial && !unsent(err))
	}
	return created, nil
}

// Unsent returns a context for a request, and a function that reports of the request's error whether the API server certainly didn't get
// the request: no attempt of the transport had a connection.
func Unsent(ctx context.Context) (context.Context, func(error) bool) {
	connected := &atomic.Bool{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	return ctx, func(err error) bool {
		_, isTransports := errors.AsType[*url.Error](err)
		return isTransports && !connected.Load()
	}
}

const (
	maxNamePrefix  = 63
	randomNameSize = 8
)

func generatedName(prefix string) string {
	if prefix == "" {
		prefix = "call-"
	}
	return prefix[:min(len(prefix), maxNamePrefix)] + utilrand.String(randomNameSize)
}

// createError adds to the error of a create request what the user can do. With mayExist, the API server may have created the object.
func (s *subject[T]) createError(object T, err error, mayExist bool) error {
	where := client.ObjectKeyFromObject(object)
	switch {
	case NotInstalled(err):
		return notInstalled(s.kind, err)
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s %s already exists%s: %w", s.name, where, s.existsHint, err)
	case LacksRight(err):
		return fmt.Errorf("create the %s (the ClusterRole toolcall-user grants permission in a namespace): %w", s.name, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsNotFound(err):
		return fmt.Errorf("the API server rejected the %s: %w", s.name, err)
	case mayExist && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return fmt.Errorf("unknown whether the %s was created; if it was, its name is %s: %w", s.name, where, err)
	default:
		return fmt.Errorf("create %s %s: %w", s.name, where, err)
	}
}

func notInstalled(kind string, err error) error {
	return fmt.Errorf("this cluster has no %s kind: install the operator, or choose another cluster with --context: %w", kind, err)
}

// LacksRight reports whether the API server's authorizer refused a request. Admission refuses with the same code, such as where a quota is
// used up.
func LacksRight(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `" cannot `)
}

// NotInstalled reports whether an error comes from a cluster that doesn't serve the kind.
func NotInstalled(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	if details == nil {
		return true
	}
	// The response for a path that isn't served comes from no kind's handler, and names no object.
	for _, cause := range details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return details.Name == ""
}

// Cancel requests the cancellation of the call. A finished call ignores it. An empty UID means any call; if there is another call of the
// same name, the error wraps ErrDeleted.
func (c Clients) Cancel(ctx context.Context, key types.NamespacedName, uid types.UID) (*v1alpha1.ToolCall, error) {
	change := map[string]any{"spec": map[string]any{"cancel": true}}
	if uid != "" {
		// A UID can't be changed, so the API server rejects the patch of another call.
		change["metadata"] = map[string]any{"uid": uid}
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := c.Calls.Patch(ctx, call, client.RawPatch(types.MergePatchType, patch)); err != nil {
		if uid != "" && (apierrors.IsInvalid(err) || apierrors.IsConflict(err)) {
			return nil, fmt.Errorf("cancel call %s: %w", key, ErrDeleted)
		}
		return nil, fmt.Errorf("cancel call %s: %w", key, err)
	}
	return call, nil
}

// Finished reports whether the call has finished, whatever the outcome. Don't use another condition for
// that: Succeeded is Unknown or False while the call runs.
func Finished(call *v1alpha1.ToolCall) bool {
	return meta.IsStatusConditionTrue(call.Status.Conditions, v1alpha1.ConditionFinished)
}
