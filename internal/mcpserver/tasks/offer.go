package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/identity"
)

// ErrTask means that the client gets a task instead of the end of a call.
var ErrTask = errors.New("the call goes on as a task")

// createTimeout bounds how long it may take to give a call a task.
const createTimeout = 10 * time.Second

// offer is what a request can be answered with instead of the end of its call.
type offer struct {
	after time.Duration
	// secret is the random part of the id that the client may get.
	secret string
	// task is nil until the client gets one.
	task *task
}

type offerKey struct{}

// offer lets the tool of a request end with a task.
func (s *Service) offer(ctx context.Context, next mcp.MethodHandler, req mcp.Request) (mcp.Result, error) {
	o := &offer{after: s.After, secret: newSecret()}
	result, err := next(context.WithValue(ctx, offerKey{}, o), methodCall, req)
	if err != nil || o.task == nil {
		return result, err
	}
	return o.task, nil
}

// Prepare lets a call that is to be created have a task from the beginning, if the client knows tasks: nobody has to write to it later.
func Prepare(ctx context.Context, call *v1alpha1.ToolCall) {
	if o, ok := ctx.Value(offerKey{}).(*offer); ok {
		o.idOf(call).addTo(call)
	}
}

// idOf is the id of a call that the client may get.
func (o *offer) idOf(call *v1alpha1.ToolCall) id {
	return id{key: client.ObjectKeyFromObject(call), uid: call.UID, secret: o.secret}
}

// Await waits for the end of a call. If that takes long and the client knows tasks, it gets one, and the error is ErrTask. If
// the call can't get a task, the wait goes on.
func Await(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall, wait func(context.Context) (*v1alpha1.ToolCall, error)) (*v1alpha1.ToolCall, error) {
	o, ok := ctx.Value(offerKey{}).(*offer)
	if !ok {
		return wait(ctx)
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var done *v1alpha1.ToolCall
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		done, failed = wait(waiting)
	}()
	select {
	case <-ended:
		return done, failed
	case <-time.After(o.after):
	}
	var err error
	if o.task, err = create(ctx, who, o.idOf(call)); err == nil {
		cancel()
		<-ended
		return nil, ErrTask
	}
	<-ended
	return done, failed
}

// create makes the task of an id. The call of an earlier request doesn't have the id yet.
func create(ctx context.Context, who *identity.Requester, i id) (*task, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	current := &v1alpha1.ToolCall{}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := who.Objects.Get(ctx, i.key, current); err != nil {
			return err
		}
		if current.UID != i.uid {
			return errNotFound
		}
		if i.isOf(current) {
			return nil
		}
		before := current.DeepCopy()
		i.addTo(current)
		return who.Objects.Patch(ctx, current, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return nil, fmt.Errorf("give the call a task: %w", err)
	}
	t := describe(i, current)
	// The end of the call is what the client asks for next.
	t.ResultType, t.Status = typeTask, working
	return t, nil
}
