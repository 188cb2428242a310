package policy

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/plugin/cli"
)

// judge judges calls under the policy of their environment, and under another one.
type judge struct {
	// policy is the one of the file.
	policy *v1alpha1.ExecutionPolicy
	// all has calls of environments that use another policy judged too.
	all bool
	// environments are those of the cluster, and byDefault the default one of each namespace.
	environments map[types.NamespacedName]*v1alpha1.ExecutionEnvironment
	byDefault    map[string]*v1alpha1.ExecutionEnvironment
	// policies are those of the cluster, and defaults those that are marked as the default.
	policies map[string]*v1alpha1.ExecutionPolicy
	defaults []v1alpha1.ExecutionPolicy
	compiled map[string]*compiledPolicy
}

type compiledPolicy struct {
	policy *decide.Policy
	err    error
}

// verdict is what comes out for a call.
type verdict struct{ text, message string }

// newJudge fails if the policy of the file can't be used.
func newJudge(policy *v1alpha1.ExecutionPolicy, all bool) (*judge, error) {
	policy = policy.DeepCopy()
	// Tells it from the one of the same name in the cluster.
	policy.UID = "file"
	j := &judge{
		policy: policy, all: all, compiled: map[string]*compiledPolicy{},
		environments: map[types.NamespacedName]*v1alpha1.ExecutionEnvironment{}, byDefault: map[string]*v1alpha1.ExecutionEnvironment{},
		policies: map[string]*v1alpha1.ExecutionPolicy{},
	}
	if _, err := j.compile(policy); err != nil {
		return nil, fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	return j, nil
}

// read reads the environments and the policies.
func (j *judge) read(ctx context.Context, c *cli.Cluster, namespace string) error {
	environments := &v1alpha1.ExecutionEnvironmentList{}
	if err := c.Client.List(ctx, environments, client.InNamespace(namespace)); err != nil {
		return c.ReadError("environments", err)
	}
	policies := &v1alpha1.ExecutionPolicyList{}
	if err := c.Client.List(ctx, policies); err != nil {
		return cli.PermissionError("list executionpolicies", err)
	}
	j.know(environments.Items, policies.Items)
	return nil
}

func (j *judge) know(environments []v1alpha1.ExecutionEnvironment, policies []v1alpha1.ExecutionPolicy) {
	for i := range environments {
		env := &environments[i]
		j.environments[client.ObjectKeyFromObject(env)] = env
		if env.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true" {
			j.byDefault[env.Namespace] = env
		}
	}
	for i := range policies {
		j.policies[policies[i].Name] = &policies[i]
		if policies[i].Annotations[v1alpha1.AnnotationDefaultPolicy] == "true" {
			j.defaults = append(j.defaults, policies[i])
		}
	}
}

// compile compiles each policy once.
func (j *judge) compile(object *v1alpha1.ExecutionPolicy) (*decide.Policy, error) {
	var key string
	if object != nil {
		key = object.Name + "/" + string(object.UID)
	}
	c := j.compiled[key]
	if c == nil {
		c = &compiledPolicy{}
		c.policy, c.err = decide.CompilePolicy(object)
		j.compiled[key] = c
	}
	return c.policy, c.err
}

// environmentOf is the environment that a call ran in, or would.
func (j *judge) environmentOf(call *v1alpha1.ToolCall) (env *v1alpha1.ExecutionEnvironment, isThere bool) {
	name := ""
	if s := call.Status.Environment; s != nil {
		name = s.Name
	}
	if ref := call.Spec.EnvironmentRef; name == "" && ref != nil {
		name = ref.Name
	}
	if name == "" {
		env = j.byDefault[call.Namespace]
	} else {
		env = j.environments[types.NamespacedName{Namespace: call.Namespace, Name: name}]
	}
	return env, env != nil
}

// isFor says whether the file's policy takes the place of the one that an environment uses.
func (j *judge) isFor(env *v1alpha1.ExecutionEnvironment) bool {
	if name := env.Spec.PolicyName(); name != "" {
		return j.all || name == j.policy.Name
	}
	isDefault := func(p v1alpha1.ExecutionPolicy) bool { return p.Name == j.policy.Name }
	return j.all || slices.ContainsFunc(j.defaults, isDefault) || j.policy.Annotations[v1alpha1.AnnotationDefaultPolicy] == "true"
}

// judge is what comes out for a call under the policy of its environment, and under the file's.
func (j *judge) judge(call *v1alpha1.ToolCall, env *v1alpha1.ExecutionEnvironment) (now, then verdict) {
	current := decide.Policies{Named: j.policies[env.Spec.PolicyName()], Defaults: j.defaults}
	file := decide.Policies{Named: j.policy, Defaults: []v1alpha1.ExecutionPolicy{*j.policy}}
	return j.under(call, env, current), j.under(call, env, file)
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

// addSession puts a call that names a session into one that begins now, and is its requester's.
func (j *judge) addSession(s *decide.Snapshot, env *v1alpha1.ExecutionEnvironment) error {
	ref := s.Call.Spec.SessionRef
	if ref == nil {
		return nil
	}
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: s.Call.Namespace, Name: ref.Name, UID: types.UID(ref.UID)}}
	session.Spec.RequestedBy, session.Spec.EnvironmentRef = s.Call.Spec.RequestedBy, cli.Reference(env.Name)
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
