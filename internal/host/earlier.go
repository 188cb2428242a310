package host

import (
	"context"
	"fmt"
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
// as they were then, it may show a process that another one has replaced.
type EarlierCalls struct {
	mu    sync.Mutex
	known bool
	uids  map[types.UID]struct{}
	// names finds a call that is gone altogether.
	names map[types.NamespacedName]types.UID
	// sessions are those of each namespace that is watched, or of all.
	sessions map[string]*earlierSessions
}

// earlierSessions are the sessions that there were at a revision, with their own.
type earlierSessions struct {
	revision int64
	of       map[types.UID]int64
}

// maxEarlier bounds a page of the list, which has metadata only.
const maxEarlier = 500

// Read lists them. Runners must not have been able to get calls from this operator before. Reading again changes nothing.
func (e *EarlierCalls) Read(ctx context.Context, api client.Reader, namespaces []string) error {
	if e.isKnown() {
		return nil
	}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	uids, names := map[types.UID]struct{}{}, map[types.NamespacedName]types.UID{}
	sessions := map[string]*earlierSessions{}
	for _, namespace := range namespaces {
		var err error
		if sessions[namespace], err = readSessions(ctx, api, namespace); err != nil {
			return err
		}
		err = eachPage(ctx, api, "ToolCallList", func(calls *metav1.PartialObjectMetadataList) {
			for i := range calls.Items {
				uids[calls.Items[i].UID] = struct{}{}
				names[client.ObjectKeyFromObject(&calls.Items[i])] = calls.Items[i].UID
			}
		}, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: apicache.InSession()})
		if err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known {
		e.known, e.uids, e.names, e.sessions = true, uids, names, sessions
	}
	return nil
}

// readSessions lists the sessions of a namespace.
func readSessions(ctx context.Context, api client.Reader, namespace string) (*earlierSessions, error) {
	earlier := &earlierSessions{of: map[types.UID]int64{}}
	err := eachPage(ctx, api, "ToolSessionList", func(sessions *metav1.PartialObjectMetadataList) {
		earlier.revision = apicache.Revision(sessions.ResourceVersion)
		for i := range sessions.Items {
			earlier.of[sessions.Items[i].UID] = apicache.Revision(sessions.Items[i].ResourceVersion)
		}
	}, client.InNamespace(namespace))
	return earlier, err
}

// takeList takes a page of a list.
type takeList func(*metav1.PartialObjectMetadataList)

// eachPage lists the metadata of a kind's objects.
func eachPage(ctx context.Context, api client.Reader, kind string, take takeList, options ...client.ListOption) error {
	for page := ""; ; {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		paged := append([]client.ListOption{client.Limit(maxEarlier), client.Continue(page)}, options...)
		if err := api.List(ctx, list, paged...); err != nil {
			return fmt.Errorf("%s: list what an operator before may have known: %w", kind, err)
		}
		take(list)
		if page = list.Continue; page == "" {
			return nil
		}
	}
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

// Forget drops a call that has ended.
func (e *EarlierCalls) Forget(call types.NamespacedName, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.uids, uid)
	if e.names[call] == uid {
		delete(e.names, call)
	}
}

// ForgetName drops the call of a name that nobody has any more.
func (e *EarlierCalls) ForgetName(call types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.uids, e.names[call])
	delete(e.names, call)
}
