package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/plugin/cli"
)

// judge judges calls under the policy of their environment, and under another one.
type judge struct {
	// policy is the one of the file, and file the same in place of those of the cluster.
	policy *v1alpha1.ExecutionPolicy
	file   decide.Policies
	// all has calls of environments that use another policy judged too.
	all bool
	// environments and policies are those of the cluster.
	environments []v1alpha1.ExecutionEnvironment
	policies     *Set
	// sessions are those of the cluster, by namespace and name.
	sessions map[types.NamespacedName]*v1alpha1.ToolSession
	// compiled are the policies that calls were judged under, so that each is compiled once.
	compiled map[*v1alpha1.ExecutionPolicy]compiledPolicy
}

type compiledPolicy struct {
	policy *decide.Policy
	err    error
}

// verdict is what comes out for a call.
type verdict struct{ text, message string }

// newJudge fails if the policy of the file can't be used.
func newJudge(policy *v1alpha1.ExecutionPolicy, all bool) (*judge, error) {
	j := &judge{
		policy: policy, file: decide.Policies{Named: policy, Defaults: []v1alpha1.ExecutionPolicy{*policy}},
		all: all, compiled: map[*v1alpha1.ExecutionPolicy]compiledPolicy{},
	}
	if _, err := j.compile(policy); err != nil {
		return nil, fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	return j, nil
}

// read reads the environments, the sessions and the policies.
func (j *judge) read(ctx context.Context, c *cli.Cluster, namespace string) error {
	list := &v1alpha1.ExecutionEnvironmentList{}
	if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return c.Explain("list", "executionenvironments", "environments", err)
	}
	sessions := &v1alpha1.ToolSessionList{}
	if err := c.Client.List(ctx, sessions, client.InNamespace(namespace)); err != nil {
		return c.Explain("list", "toolsessions", "sessions", err)
	}
	j.sessions = map[types.NamespacedName]*v1alpha1.ToolSession{}
	for i := range sessions.Items {
		j.sessions[client.ObjectKeyFromObject(&sessions.Items[i])] = &sessions.Items[i]
	}
	j.environments, j.policies = list.Items, ReadSet(ctx, c.Client)
	return j.policies.Err
}

// compile compiles each policy once.
func (j *judge) compile(object *v1alpha1.ExecutionPolicy) (*decide.Policy, error) {
	c, isThere := j.compiled[object]
	if !isThere {
		c.policy, c.err = decide.CompilePolicy(object)
		j.compiled[object] = c
	}
	return c.policy, c.err
}

// environmentOf is the environment that a call ran in, or would; nil if it isn't there.
func (j *judge) environmentOf(call *v1alpha1.ToolCall) *v1alpha1.ExecutionEnvironment {
	ref, began := call.Spec.EnvironmentRef, call.Status.Environment
	if s := j.sessionOf(call); s != nil {
		// A call that waits has the environment of its session.
		ref, began = s.Spec.EnvironmentRef, cmp.Or(began, s.Status.Environment)
	}
	name := ptr.Deref(ref, v1alpha1.LocalReference{}).Name
	if began != nil {
		name = cmp.Or(began.Name, name)
	}
	at := slices.IndexFunc(j.environments, func(env v1alpha1.ExecutionEnvironment) bool {
		isMeant := env.Name == name || name == "" && env.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true"
		return isMeant && env.Namespace == call.Namespace
	})
	if at < 0 {
		return nil
	}
	return &j.environments[at]
}

// sessionOf is the session that a call names, as long as that is there; nil for none.
func (j *judge) sessionOf(call *v1alpha1.ToolCall) *v1alpha1.ToolSession {
	ref := call.Spec.SessionRef
	if ref == nil {
		return nil
	}
	s := j.sessions[types.NamespacedName{Namespace: call.Namespace, Name: ref.Name}]
	if s == nil || ref.UID != "" && ref.UID != string(s.UID) {
		return nil
	}
	return s
}

// isFor says whether the file's policy takes the place of the one that an environment uses.
func (j *judge) isFor(env *v1alpha1.ExecutionEnvironment) bool {
	if name := env.Spec.PolicyName(); name != "" {
		return j.all || name == j.policy.Name
	}
	isDefault := func(p v1alpha1.ExecutionPolicy) bool { return p.Name == j.policy.Name }
	return j.all || slices.ContainsFunc(j.policies.defaults, isDefault) || j.policy.Annotations[v1alpha1.AnnotationDefaultPolicy] == "true"
}

// judge is what comes out for a call under the policy of its environment, and under the file's.
func (j *judge) judge(call *v1alpha1.ToolCall, env *v1alpha1.ExecutionEnvironment) (now, then verdict) {
	return j.under(call, env, j.policies.Of(env)), j.under(call, env, j.file)
}

// under decides about a call under policies, in its environment as it is now. A call in a session is judged as the first of a new one, and
// the requester has the rights that it had.
func (j *judge) under(call *v1alpha1.ToolCall, env *v1alpha1.ExecutionEnvironment, policies decide.Policies) verdict {
	s := &decide.Snapshot{
		Call: call, Policies: policies, Compile: j.compile,
		Requester: decide.Requester{Vouched: call.Spec.RequestedBy != nil},
		Access:    decide.Access{Allowed: call.Status.Reason != v1alpha1.ReasonAgentNotAllowed},
	}
	if call.Spec.EnvironmentRef != nil {
		s.Named = env
	} else {
		s.Defaults = []v1alpha1.ExecutionEnvironment{*env}
	}
	if ref := call.Spec.SkillRef; ref != nil {
		s.Skill = &v1alpha1.Skill{ObjectMeta: metav1.ObjectMeta{Namespace: call.Namespace, Name: ref.Name}}
	}
	if err := j.addSession(s, env); err != nil {
		return verdictOf(nil, err)
	}
	return verdictOf(decide.Decide(s))
}

// addSession puts a call that names a session into one that begins now, and is its requester's. It has the labels, the variables and the
// directory of the call's, as long as that is there.
func (j *judge) addSession(s *decide.Snapshot, env *v1alpha1.ExecutionEnvironment) error {
	ref := s.Call.Spec.SessionRef
	if ref == nil {
		return nil
	}
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: s.Call.Namespace, Name: ref.Name, UID: types.UID(ref.UID)}}
	if is := j.sessionOf(s.Call); is != nil {
		session.Labels, session.Spec.Env, session.Spec.WorkingDir = is.Labels, is.Spec.Env, is.Spec.WorkingDir
	}
	session.Spec.RequestedBy, session.Spec.EnvironmentRef = s.Call.Spec.RequestedBy, &v1alpha1.LocalReference{Name: env.Name}
	in := decide.Context{Named: env}
	origin, err := decide.Begin(&decide.SessionSnapshot{Session: session, Context: in, Policies: s.Policies, Compile: j.compile})
	if err != nil {
		return err
	}
	s.Session = decide.Session{Object: session, Requester: s.Requester, Origin: origin, Current: env}
	return nil
}

func verdictOf(decision *decide.Decision, err error) verdict {
	v, reason, message := decide.VerdictOf(decision, err)
	if reason == "" {
		return verdict{text: string(v)}
	}
	return verdict{text: string(v) + " (" + reason + ")", message: message}
}
