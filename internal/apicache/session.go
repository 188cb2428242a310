package apicache

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// FieldSession is the field that the API server selects a session's calls by.
const FieldSession = "spec.sessionRef.name"

// InSession selects the calls of sessions that have not ended.
func InSession() fields.Selector {
	return fields.AndSelectors(InFlight(), fields.OneTermNotEqualSelector(FieldSession, ""))
}

// annotationEnvOmitted and annotationLabelsOmitted say, in memory only, that a session's variables, or its labels, were left out.
const (
	annotationEnvOmitted    = "toolcall.dev/env-omitted"
	annotationLabelsOmitted = "toolcall.dev/labels-omitted"
)

// maxCachedLabels is how much of a session's labels the cache keeps, in bytes. The rules of policies read them.
const maxCachedLabels = 1 << 10

// slimSession leaves out what a session with a large environment began with, large variables, large labels, and what nobody reads of
// the metadata. A session that has ended needs no variables and no labels at all. One that has been through it stays as it is.
func slimSession(session *v1alpha1.ToolSession) {
	if bound := session.Status.Runner; bound != nil && len(bound.Decision) > maxCachedInput {
		bound.Decision = omittedDecision
	}
	before := session.Annotations
	session.Annotations, session.OwnerReferences = nil, nil
	if restored, isRestored := before[v1alpha1.AnnotationRestored]; isRestored {
		session.Annotations = map[string]string{v1alpha1.AnnotationRestored: restored[:min(len(restored), maxCachedAnnotation)]}
	}
	if session.Status.Phase == v1alpha1.SessionEnded {
		session.Spec.Env, session.Labels = nil, nil
		return
	}
	// isTooLarge says that what takes that many bytes is left out, or was before, and marks it.
	isTooLarge := func(mark string, size, kept int) bool {
		if _, omitted := before[mark]; size <= kept && !(omitted && size == 0) {
			return false
		}
		metav1.SetMetaDataAnnotation(&session.ObjectMeta, mark, "")
		return true
	}
	size := 0
	for _, v := range session.Spec.Env {
		size += len(v.Name) + len(v.Value)
	}
	if isTooLarge(annotationEnvOmitted, size, maxCachedInput) {
		session.Spec.Env = nil
	}
	if isTooLarge(annotationLabelsOmitted, textBytes(session.Labels), maxCachedLabels) {
		session.Labels = nil
	}
}

// WholeSession is a session with all its variables. The cache leaves large ones out.
func (r Reader) WholeSession(ctx context.Context, session *v1alpha1.ToolSession) (*v1alpha1.ToolSession, error) {
	return r.withOmitted(ctx, session, annotationEnvOmitted)
}

// LabelledSession is a session with all its labels, and otherwise as it is given. The cache leaves large ones out.
func (r Reader) LabelledSession(ctx context.Context, session *v1alpha1.ToolSession) (*v1alpha1.ToolSession, error) {
	whole, err := r.withOmitted(ctx, session, annotationLabelsOmitted)
	if err != nil || whole == session {
		return whole, err
	}
	labelled := session.DeepCopy()
	labelled.Labels = whole.Labels
	return labelled, nil
}

// withOmitted reads a session past the cache that has the mark, and gives back any other.
func (r Reader) withOmitted(ctx context.Context, session *v1alpha1.ToolSession, mark string) (*v1alpha1.ToolSession, error) {
	if _, omitted := session.Annotations[mark]; !omitted {
		return session, nil
	}
	whole := &v1alpha1.ToolSession{}
	if err := r.readWhole(ctx, session, whole); err != nil {
		return nil, err
	}
	return whole, nil
}

// ofSessions is indexBy for sessions that have not ended.
func ofSessions(value func(*v1alpha1.ToolSession) string) client.IndexerFunc {
	return indexBy(func(session *v1alpha1.ToolSession) string {
		if session.Status.Phase == v1alpha1.SessionEnded {
			return ""
		}
		return value(session)
	})
}

var (
	// sessionOfCall is the session of a call that has not ended.
	sessionOfCall = ofCall(func(call *v1alpha1.ToolCall) string {
		if call.Spec.SessionRef == nil {
			return ""
		}
		return call.Spec.SessionRef.Name
	})
	// jobOfSession is the Job that is recorded in a session that has not ended.
	jobOfSession = ofSessions(func(session *v1alpha1.ToolSession) string { return session.Status.Job })
	// environmentOfSession is the environment of a session that has not ended.
	environmentOfSession = ofSessions(func(session *v1alpha1.ToolSession) string { return resolvedName(session.Status.Environment) })
)

// SealedOrigin is what a session that has had a runner began with, sealed. The cache leaves large ones out.
func (r Reader) SealedOrigin(ctx context.Context, session *v1alpha1.ToolSession) (string, error) {
	whole := &v1alpha1.ToolSession{}
	return r.sealed(ctx, session, whole, session.Status.Runner, &whole.Status.Runner)
}

// CallsOfSession are the calls of a session that have not ended, as the cache has them.
func (r Reader) CallsOfSession(ctx context.Context, session *v1alpha1.ToolSession) ([]v1alpha1.ToolCall, error) {
	calls := &v1alpha1.ToolCallList{}
	err := r.listBy(ctx, calls, session.Namespace, IndexCallSession, session.Name, client.UnsafeDisableDeepCopy)
	return ofSession(calls.Items, session), err
}

// AnyCall says whether a session has a call that has not ended and of which is says true. That it has none nobody may be wrong
// about: the API server says so, past the cache.
func (r Reader) AnyCall(ctx context.Context, session *v1alpha1.ToolSession, is func(*v1alpha1.ToolCall) bool) (bool, error) {
	cached, err := r.CallsOfSession(ctx, session)
	if err != nil {
		return false, err
	}
	for i := range cached {
		if is(&cached[i]) {
			return true, nil
		}
	}
	found := false
	named := fields.AndSelectors(InFlight(), fields.OneTermEqualSelector(FieldSession, session.Name))
	err = r.eachLive(ctx, session.Namespace, named, func(call *v1alpha1.ToolCall) (enough bool) {
		found = isOf(call, session) && is(call)
		return found
	})
	return found, err
}

// eachLive visits calls past the cache until one of them is enough.
func (r Reader) eachLive(ctx context.Context, namespace string, selected fields.Selector, visit func(*v1alpha1.ToolCall) (enough bool)) error {
	for page := ""; ; {
		calls := &v1alpha1.ToolCallList{}
		err := r.Live.List(ctx, calls, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: selected}, client.Limit(maxPage), client.Continue(page))
		if next := afterExpired(err); next != "" && next != page {
			page = next
			continue
		}
		if err != nil {
			return fmt.Errorf("list calls past the cache: %w", err)
		}
		for i := range calls.Items {
			if visit(&calls.Items[i]) {
				return nil
			}
		}
		if page = calls.Continue; page == "" {
			return nil
		}
	}
}

// maxPage bounds how many calls are read at a time, which may be large.
const maxPage = 20

// ofSession leaves out the calls that name another session of the same name. It may share its memory with the calls.
func ofSession(calls []v1alpha1.ToolCall, session *v1alpha1.ToolSession) []v1alpha1.ToolCall {
	var own []v1alpha1.ToolCall
	for i := range calls {
		if isOf(&calls[i], session) {
			own = append(own, calls[i])
		}
	}
	return own
}

func isOf(call *v1alpha1.ToolCall, session *v1alpha1.ToolSession) bool {
	uid := call.Spec.SessionRef.UID
	return uid == "" || uid == string(session.UID)
}

// SessionsOfJob are the sessions that have not ended and record a Job as theirs.
func (r Reader) SessionsOfJob(ctx context.Context, job types.NamespacedName) ([]v1alpha1.ToolSession, error) {
	sessions := &v1alpha1.ToolSessionList{}
	err := r.listBy(ctx, sessions, job.Namespace, IndexSessionJob, job.Name, client.UnsafeDisableDeepCopy)
	return sessions.Items, err
}

// SessionsIn are the sessions of an environment that have not ended. They are not to be changed.
func (r Reader) SessionsIn(ctx context.Context, environment types.NamespacedName) ([]v1alpha1.ToolSession, error) {
	sessions := &v1alpha1.ToolSessionList{}
	err := r.listBy(ctx, sessions, environment.Namespace, IndexSessionEnvironment, environment.Name, client.UnsafeDisableDeepCopy)
	return sessions.Items, err
}

// IsNodeGone says that a Node is deleted, or that somebody vouches that it is out of service: no process runs on it. It is
// false for a node that nobody can name.
func (r Reader) IsNodeGone(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	node := &corev1.Node{}
	found, err := get(ctx, r.Live, types.NamespacedName{Name: name}, node)
	if err != nil || !found {
		return err == nil, err
	}
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }), nil
}

// CountSessions counts the sessions by phase and environment; none while the cache isn't filled.
func CountSessions(reader client.Reader) map[v1alpha1.SessionPhase]map[types.NamespacedName]int {
	sessions, counts := &v1alpha1.ToolSessionList{}, map[v1alpha1.SessionPhase]map[types.NamespacedName]int{}
	if reader.List(context.Background(), sessions, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency) != nil {
		return counts
	}
	for i := range sessions.Items {
		session := &sessions.Items[i]
		phase := session.Status.Phase
		if counts[phase] == nil {
			counts[phase] = map[types.NamespacedName]int{}
		}
		counts[phase][environmentOf(session.Namespace, session.Status.Environment, session.Spec.EnvironmentRef)]++
	}
	return counts
}

// EnvironmentOfSession is the environment of a session in the cache; without a name when the session isn't there.
func EnvironmentOfSession(reader client.Reader, name types.NamespacedName) types.NamespacedName {
	session := &v1alpha1.ToolSession{}
	if err := reader.Get(context.Background(), name, session, client.DisableReadYourWritesConsistency); err != nil {
		return types.NamespacedName{Namespace: name.Namespace}
	}
	return environmentOf(name.Namespace, session.Status.Environment, session.Spec.EnvironmentRef)
}

// EachFinished visits the calls of a namespace, or of all, that have ended, and that are selected. The cache has none.
func (r Reader) EachFinished(ctx context.Context, namespace string, selected fields.Selector, visit func(*v1alpha1.ToolCall)) error {
	return r.eachLive(ctx, namespace, fields.AndSelectors(Finished(), selected), func(call *v1alpha1.ToolCall) bool {
		visit(call)
		return false
	})
}

// afterExpired is where to go on with a list that took so long that the API server doesn't have its start any more: after the last object
// of it, with what is there now.
func afterExpired(err error) (page string) {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}
