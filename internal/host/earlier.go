package host

import (
	"cmp"
	"context"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
)

// EarlierCalls are the sessions' calls that had not ended when this operator began to work: an operator before it may have
// handed any of them to its session's runner, which alone can say. What came later, nobody else has handed over.
//
// They are read once, past the cache, which may lack some of them for a while. So are the sessions: until the cache shows them
// as they were then, it may show a process that another one has replaced. The UIDs of the calls are kept: nobody asks for one that has
// ended.
type EarlierCalls struct{ known atomic.Pointer[earlierCalls] }

// earlierCalls are what was read.
type earlierCalls struct {
	uids map[types.UID]struct{}
	// sessions are those of each namespace that is watched, or of all; nil once the cache has caught up with them.
	sessions map[string]*atomic.Pointer[earlierSessions]
}

// earlierSessions are the sessions that there were at a revision, with their own.
type earlierSessions struct {
	revision int64
	of       map[types.UID]int64
}

// Read lists them. Runners must not have been able to get calls from this operator before. Reading again changes nothing.
func (e *EarlierCalls) Read(ctx context.Context, api client.Reader, namespaces []string) error {
	if e.known.Load() != nil {
		return nil
	}
	read := &earlierCalls{map[types.UID]struct{}{}, map[string]*atomic.Pointer[earlierSessions]{}}
	for _, namespace := range namespaces {
		sessions, err := readSessions(ctx, api, namespace)
		if err != nil {
			return err
		}
		read.sessions[namespace] = &atomic.Pointer[earlierSessions]{}
		read.sessions[namespace].Store(sessions)
		inSessions := client.ListOptions{Namespace: namespace, FieldSelector: apicache.InSession()}
		err = apicache.EachPage(ctx, api, "ToolCall", inSessions, func(calls *metav1.PartialObjectMetadataList) error {
			for i := range calls.Items {
				read.uids[calls.Items[i].UID] = struct{}{}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	e.known.CompareAndSwap(nil, read)
	return nil
}

// readSessions lists the sessions of a namespace.
func readSessions(ctx context.Context, api client.Reader, namespace string) (*earlierSessions, error) {
	earlier := &earlierSessions{of: map[types.UID]int64{}}
	all := client.ListOptions{Namespace: namespace}
	err := apicache.EachPage(ctx, api, "ToolSession", all, func(sessions *metav1.PartialObjectMetadataList) error {
		earlier.revision = cmp.Or(earlier.revision, apicache.Revision(sessions.ResourceVersion))
		for i := range sessions.Items {
			earlier.of[sessions.Items[i].UID] = apicache.Revision(sessions.Items[i].ResourceVersion)
		}
		return nil
	})
	return earlier, err
}

// IsBehind says that a session, as the cache shows it, is not yet as it was when this operator began to work. Before they are
// read, that is any.
func (e *EarlierCalls) IsBehind(session *v1alpha1.ToolSession) bool {
	known := e.known.Load()
	if known == nil {
		return true
	}
	in := cmp.Or(known.sessions[metav1.NamespaceAll], known.sessions[session.Namespace])
	if in == nil {
		return false
	}
	earlier := in.Load()
	if earlier == nil {
		return false
	}
	now := apicache.Revision(session.ResourceVersion)
	if now > earlier.revision {
		// What a cache shows comes in the order of its revisions: it isn't behind any more.
		in.Store(nil)
		return false
	}
	at, listed := earlier.of[session.UID]
	return !listed || now < at
}

// Has says whether an operator before this one may have handed a call over. Before they are read, that is any.
func (e *EarlierCalls) Has(uid types.UID) bool {
	known := e.known.Load()
	if known == nil {
		return true
	}
	_, has := known.uids[uid]
	return has
}
