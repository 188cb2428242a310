package subresources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
)

// callResource is what calls are to RBAC.
var callResource = v1alpha1.GroupVersion.WithResource("toolcalls").GroupResource()

// rights knows what RBAC on the group of subresources can't say. It fails closed.
type rights struct {
	// sessions reads past the cache: a session that was just deleted and made again is another one.
	sessions   client.Reader
	requesters *access.Requesters
	reviews    *access.Reviews
}

// checkSession says why a user may not read the output of a session's call. That may the session's creator, and whoever may
// use the session.
func (r *rights) checkSession(ctx context.Context, who user.Info, call *v1alpha1.ToolCall) error {
	ref := call.Spec.SessionRef
	if ref == nil {
		return nil
	}
	reader := access.RequesterOf(who)
	owner, err := r.ownerOf(ctx, call)
	if err != nil {
		return unavailable("whose session %q is could not be checked: %s", ref.Name, err.Error())
	}
	if owner != nil && owner.Username != "" && owner.Username == reader.Username && owner.UID == reader.UID {
		return nil
	}
	may, err := r.reviews.MayUseSession(ctx, reader, call.Namespace, ref.Name)
	switch {
	case err != nil:
		return unavailable("%s", err.Error())
	case may:
		return nil
	default:
		return forbidden(types.NamespacedName{Namespace: call.Namespace, Name: call.Name},
			"the output of calls in the ToolSession %q is for the session's creator and for those who have the verb \"use\" on it", ref.Name)
	}
}

// ownerOf is the creator of the call's session. Of a session that isn't there any more, or can't be told from one of the same
// name that was made later, the call's own requester takes the place; nil when admission vouches for neither.
func (r *rights) ownerOf(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.Requester, error) {
	session := &v1alpha1.ToolSession{}
	err := r.sessions.Get(ctx, types.NamespacedName{Namespace: call.Namespace, Name: call.Spec.SessionRef.Name}, session)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get the session: %w", err)
	}
	if err == nil && isSessionOf(session, call) {
		vouched, _, err := r.requesters.SessionVouched(ctx, session)
		if err != nil || !vouched {
			return nil, err
		}
		return session.Spec.RequestedBy, nil
	}
	vouched, _, err := r.requesters.Vouched(ctx, call)
	if err != nil || !vouched {
		return nil, err
	}
	return call.Spec.RequestedBy, nil
}

// isSessionOf says that the call certainly belongs to this session: it names its UID, or was created later. Times of objects
// are whole seconds.
func isSessionOf(session *v1alpha1.ToolSession, call *v1alpha1.ToolCall) bool {
	if uid := call.Spec.SessionRef.UID; uid != "" {
		return uid == string(session.UID)
	}
	return session.CreationTimestamp.Time.Before(call.CreationTimestamp.Time)
}

func forbidden(call types.NamespacedName, format string, args ...any) error {
	return apierrors.NewForbidden(callResource, call.Name, fmt.Errorf(format, args...))
}

// calls reads calls.
type calls struct {
	live, cached client.Reader
	// stored are those that were read last of which nothing changes any more, by their names.
	stored *cache.LRUExpireCache
}

// get reads a call as it is now. Only the right one counts when a UID is given.
func (c *calls) get(ctx context.Context, name types.NamespacedName, uid types.UID) (*v1alpha1.ToolCall, error) {
	call, err := c.read(ctx, name, uid)
	if err != nil {
		return nil, getFailed(err, callResource, "call", name)
	}
	if uid != "" && uid != call.UID {
		return nil, apierrors.NewConflict(callResource, name.Name, errors.New("it is another call than the one with the uid that is asked for"))
	}
	return call, nil
}

// getFailed is what a client is told of an object that can't be read.
func getFailed(err error, resource schema.GroupResource, noun string, name types.NamespacedName) error {
	switch {
	case apierrors.IsNotFound(err):
		return apierrors.NewNotFound(resource, name.Name)
	case apierrors.IsForbidden(err):
		return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, nil, "the operator doesn't work in namespace %q", name.Namespace)
	default:
		return unavailable("get the %s: %s", noun, err.Error())
	}
}

// storedTTL is for how long a call whose output is stored isn't read again: nothing of it changes any more, and a call with a
// lot of output is large. Who may read it is checked each time. storedCalls is how many of them are in memory.
const (
	storedTTL   = 3 * time.Second
	storedCalls = 16
)

func (c *calls) read(ctx context.Context, name types.NamespacedName, uid types.UID) (*v1alpha1.ToolCall, error) {
	// Without a UID, the one that there is now is meant.
	if found, ok := c.stored.Get(name); ok && found.(*v1alpha1.ToolCall).UID == uid {
		return found.(*v1alpha1.ToolCall), nil
	}
	call := &v1alpha1.ToolCall{}
	err := c.live.Get(ctx, name, call)
	if err == nil && call.Status.OutputState == v1alpha1.OutputComplete {
		c.stored.Add(name, call, storedTTL)
	}
	return call, err
}

// again reads the same call once more: out of memory while it hasn't ended, which costs little to ask for often.
func (c *calls) again(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	name := client.ObjectKeyFromObject(call)
	now := &v1alpha1.ToolCall{}
	if err := c.cached.Get(ctx, name, now); err == nil && now.UID == call.UID {
		return now, nil
	}
	return c.get(ctx, name, call.UID)
}
