package host

import (
	"context"
	"sync"

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
type EarlierCalls struct {
	mu    sync.Mutex
	known bool
	uids  map[types.UID]struct{}
	// sessions are those of each namespace that is watched, or of all.
	sessions map[string]*earlierSessions
}

// earlierSessions are the sessions that there were at a revision, with their own.
type earlierSessions struct {
	revision int64
	of       map[types.UID]int64
}

// Read lists them. Runners must not have been able to get calls from this operator before. Reading again changes nothing.
func (e *EarlierCalls) Read(ctx context.Context, api client.Reader, namespaces []string) error {
	if e.isKnown() {
		return nil
	}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	uids, sessions := map[types.UID]struct{}{}, map[string]*earlierSessions{}
	for _, namespace := range namespaces {
		var err error
		if sessions[namespace], err = readSessions(ctx, api, namespace); err != nil {
			return err
		}
		inSessions := client.ListOptions{Namespace: namespace, FieldSelector: apicache.InSession()}
		err = apicache.EachPage(ctx, api, "ToolCall", inSessions, func(calls *metav1.PartialObjectMetadataList) error {
			for i := range calls.Items {
				uids[calls.Items[i].UID] = struct{}{}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known {
		e.known, e.uids, e.sessions = true, uids, sessions
	}
	return nil
}

// readSessions lists the sessions of a namespace.
func readSessions(ctx context.Context, api client.Reader, namespace string) (*earlierSessions, error) {
	earlier := &earlierSessions{of: map[types.UID]int64{}}
	all := client.ListOptions{Namespace: namespace}
	err := apicache.EachPage(ctx, api, "ToolSession", all, func(sessions *metav1.PartialObjectMetadataList) error {
		earlier.revision = apicache.Revision(sessions.ResourceVersion)
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known {
		return true
	}
	namespace := session.Namespace
	if e.sessions[metav1.NamespaceAll] != nil {
		namespace = metav1.NamespaceAll
	}
	earlier := e.sessions[namespace]
	if earlier == nil {
		return false
	}
	now := apicache.Revision(session.ResourceVersion)
	if now > earlier.revision {
		// What a cache shows comes in the order of its revisions: it isn't behind any more.
		delete(e.sessions, namespace)
		return false
	}
	at, listed := earlier.of[session.UID]
	return !listed || now < at
}

func (e *EarlierCalls) isKnown() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known
}

// Has says whether an operator before this one may have handed a call over. Before they are read, that is any.
func (e *EarlierCalls) Has(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, has := e.uids[uid]
	return has || !e.known
}
