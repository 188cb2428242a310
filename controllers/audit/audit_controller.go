// Package audit has a record written of each call and session that has ended, or that was deleted before, and of each
// decision of a person about a call (follow.go). It watches by itself what the other controllers write, and adds records to a queue.
// Nothing waits for it but the deletion of calls that have ended.
//
// Which records were written isn't kept in the API: where the audit log is a file, the file says it, so that a record that an
// operator wrote before it was killed isn't written again. A call that is deleted while no operator runs, and that none had recorded
// before, has no record.
package audit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/audit"
)

// followPause is how long to wait before a watch that broke off is begun again.
const followPause = 5 * time.Second

// Auditor is a manager.Runnable for the leader.
type Auditor struct {
	// Client watches and reads; its cache is not used.
	Client client.WithWatch
	// Objects looks up environments and policies.
	Objects apicache.Reader
	// Requesters say for whose requester admission vouches.
	Requesters *access.Requesters
	// Namespaces are those to look into; NamespaceAll for the whole cluster.
	Namespaces []string
	Clock      clock.PassiveClock
	Log        logr.Logger
	// Written says which records there are already, when the operator begins to lead; nil for a log that can't be read back.
	Written func() (audit.IDs, error)
	// Add has a record written.
	Add func(audit.Record)

	mu sync.Mutex
	// calls are those of the followers that follow calls.
	calls []*follower
}

// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcalls,verbs=get;list;watch
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolsessions,verbs=get;list;watch
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=executionenvironments,verbs=get;list;watch
// +kubebuilder:rbac:groups=toolcall.dev,resources=executionpolicies,verbs=get;list;watch

// Start runs until the context ends.
func (a *Auditor) Start(ctx context.Context) error {
	var written audit.IDs
	if a.Written != nil {
		var err error
		if written, err = a.Written(); err != nil {
			a.Log.Error(err, "Failed to read the audit log back; records can be written twice")
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, namespace := range a.Namespaces {
		for _, k := range kinds {
			f := &follower{Auditor: a, kind: k, namespace: namespace, written: written, recorded: map[types.UID]struct{}{}}
			if k.name == kindCall {
				a.mu.Lock()
				a.calls = append(a.calls, f)
				a.mu.Unlock()
			}
			running.Go(func() {
				wait.UntilWithContext(ctx, func(ctx context.Context) {
					if err := f.follow(ctx); err != nil && ctx.Err() == nil {
						a.Log.Error(err, "Failed to watch what is to be audited; retrying", "kind", k.name, "after", followPause)
					}
				}, followPause)
			})
		}
	}
	return nil
}

// IsBehind says that calls of a namespace may have ended which no HasCall knows: what ended before isn't listed yet, or can't be, or the
// watch broke off.
func (a *Auditor) IsBehind(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !slices.ContainsFunc(a.calls, func(f *follower) bool {
		return f.isWatching && (f.namespace == namespace || f.namespace == metav1.NamespaceAll)
	})
}

// HasCall says that a call which has ended has a record, in the log or on its way there.
func (a *Auditor) HasCall(uid types.UID) bool {
	a.mu.Lock()
	calls := a.calls
	a.mu.Unlock()
	return slices.ContainsFunc(calls, func(f *follower) bool { return f.has(uid) })
}

// about is what the record of an object of a namespace says besides the object. An environment or a policy that can't be read lets no
// arguments be recorded.
func (a *Auditor) about(ctx context.Context, namespace string, resolved *v1alpha1.ResolvedEnvironment, isDeleted, isVouched bool) audit.About {
	about := audit.About{Now: a.Clock.Now(), IsDeleted: isDeleted, IsVouched: isVouched}
	if resolved == nil || resolved.Name == "" {
		return about
	}
	env := &v1alpha1.ExecutionEnvironment{}
	if a.Objects.Get(ctx, types.NamespacedName{Namespace: namespace, Name: resolved.Name}, env) != nil {
		return about
	}
	about.Image = env.Spec.Image
	policies, err := a.Objects.Policies(ctx, env)
	if err != nil {
		return about
	}
	policy, err := policies.For(env)
	if err == nil && policy != nil && policy.Spec.Audit != nil {
		about.WithArguments = ptr.Deref(policy.Spec.Audit.Arguments, false)
	}
	return about
}
