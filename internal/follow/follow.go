// Package follow creates a call and follows it to its end, for programs that wait for one.
//
// Input is a client that can create, get, watch and patch calls, and one that reads pods' logs. Wait tells its
// Watcher of every change that it sees and of the command's output, and returns the finished call.
//
// Invariants: the call's status is the truth and the pod's log only makes it come sooner, so that nobody waits
// for a log when the status has all there is; output is told once, in the order of the log, and what the log
// did not give is taken from the status where that is exactly possible, else the Watcher is told so; a watch that
// breaks is begun again and misses no end and no deletion; all goroutines have ended when a function returns.
//
// The package must not print, choose exit codes, or decide what may run: its callers do.
package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// ErrDeleted says that the call was deleted before it was seen to finish. Its process is stopped then.
var ErrDeleted = errors.New("the call was deleted before it was finished")

// Clients are what following needs: reading and watching calls, and reading their pods' logs.
type Clients struct {
	Calls client.WithWatch
	// Pods may be nil: then output is told at the end, from the status.
	Pods corev1client.PodsGetter
}

// Watcher is told what happens, in order, from one goroutine; nil functions are skipped.
type Watcher struct {
	// Changed is told of each change of the call that was seen, the last one included.
	Changed func(call *v1alpha1.ToolCall)

	// Output is told what the command writes, while it runs where the pod's log can be read. The pod's log
	// shows whole lines, and both streams in one unless the cluster can tell them apart.
	Output func(chunk []byte)

	// Errors, when set, is told of the standard error instead of Output wherever that is known: at the end
	// from the status, and live if the cluster can tell the streams apart.
	Errors func(chunk []byte)

	// Apart, with Errors, keeps the two streams apart at the cost of coming late: a log that mixes them isn't
	// told live.
	Apart bool

	// Late tells all output at the end.
	Late bool

	// Notice is told, in a sentence for a person, why there is no live output and what is missing at the end.
	Notice func(text string)
}

// Create creates the call. Of a GenerateName it makes the name itself, so that an error in which the answer was
// lost names the call that may be there.
func (c Clients) Create(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	created := call.DeepCopy()
	if created.Name == "" {
		created.Name = generatedName(created.GenerateName)
	}
	if err := c.Calls.Create(ctx, created); err != nil {
		return nil, createError(created, err)
	}
	return created, nil
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

// createError says what to do about a call that wasn't created.
func createError(call *v1alpha1.ToolCall, err error) error {
	where := call.Namespace + "/" + call.Name
	switch {
	case NotInstalled(err):
		return notInstalled(err)
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("a call named %s is there already, and a name runs at most once: choose another name, or look at that call: %w", where, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("create the call (the ClusterRole toolcall-user has the right to, in a namespace): %w", err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsNotFound(err):
		return fmt.Errorf("the call was refused: %w", err)
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return fmt.Errorf("it isn't known whether the call was created; if it was, its name is %s: %w", where, err)
	default:
		return fmt.Errorf("create call %s: %w", where, err)
	}
}

func notInstalled(err error) error {
	return fmt.Errorf("this cluster doesn't know ToolCalls: install the operator there, or choose another cluster with --context: %w", err)
}

// NotInstalled says whether an error comes from a cluster that has no such kind.
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
	// The answer for a path that isn't served comes from no kind's handler, and says nothing of an object.
	for _, cause := range details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return details.Name == ""
}

// Cancel asks the call to stop. One that is finished ignores it.
func (c Clients) Cancel(ctx context.Context, key types.NamespacedName) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"cancel": true}})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := c.Calls.Patch(ctx, call, client.RawPatch(types.MergePatchType, patch)); err != nil {
		if NotInstalled(err) {
			err = notInstalled(err)
		}
		return fmt.Errorf("cancel call %s: %w", key, err)
	}
	return nil
}

// Finished says whether the call has ended, whatever the outcome.
func Finished(call *v1alpha1.ToolCall) bool {
	return meta.IsStatusConditionTrue(call.Status.Conditions, v1alpha1.ConditionFinished)
}
