package decide

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
)

// Origin is what a session begins with. All its pods are made from it, and the variables of its calls come from it,
// whatever becomes of the objects meanwhile.
type Origin struct {
	// Context holds copies of the objects: what names them, labels and spec.
	Context
	// WorkingDir and Env are the session's own. They are kept too, so that a changed spec changes nothing.
	WorkingDir string
	Env        []v1alpha1.CallEnvVar
	// Refs are the variables that the kubelet resolves in the session's pods, under internal names: those that a call
	// of the session may get which sets nothing itself.
	Refs []corev1.EnvVar
	// Blocklist is the policy's, as the session began.
	Blocklist []string `json:",omitempty"`
	// Unrestricted says that the session's pods are made for calls whose network nothing of the runner's holds.
	Unrestricted bool `json:",omitempty"`
}

// SessionSnapshot is all that the beginning of a session depends on.
type SessionSnapshot struct {
	Session *v1alpha1.ToolSession
	// Context holds the objects that the session's image, variables and directory come from.
	Context
	// Policies holds the policies that may apply.
	Policies Policies
	// Compile compiles a policy, as in Snapshot.
	Compile func(*v1alpha1.ExecutionPolicy) (*Policy, error)
}

// Begin decides what a session begins with. The error is a *Refusal: with its reason and message the session ends.
func Begin(s *SessionSnapshot) (*Origin, error) {
	spec := &s.Session.Spec
	asked := &request{
		of: "session", namespace: s.Session.Namespace, environmentRef: spec.EnvironmentRef, skillRef: spec.SkillRef,
		workingDir: spec.WorkingDir, env: spec.Env,
	}
	if err := s.check(asked); err != nil {
		return nil, err
	}
	object, err := s.Policies.For(s.Effective())
	if err != nil {
		return nil, err
	}
	policy, err := compileWith(s.Compile, object)
	if err != nil {
		return nil, err
	}
	blocklist := policy.EnvBlocklist()
	plan, refs := s.plan(asked, blocklist)
	if err := plan.Validate(); err != nil {
		return nil, Refuse(v1alpha1.ReasonInvalidEnvironment, "the session's variables: %s", err.Error())
	}
	refs = withSecrets(refs, s.Effective(), &plan)
	return &Origin{
		Context: s.Context.copied(), WorkingDir: spec.WorkingDir, Env: slices.Clone(spec.Env), Refs: refs, Blocklist: blocklist,
		Unrestricted: !RestrictsNetwork(object),
	}, nil
}

// Resolved is the environment of a call that sets nothing itself, as far as it is known without a pod: names and sources of what the
// session, its environments and its skill set.
func (o *Origin) Resolved() *v1alpha1.ResolvedEnvironment {
	plan, _ := o.plan(&request{workingDir: o.WorkingDir, env: o.Env}, o.Blocklist)
	sources := map[string]v1alpha1.EnvSource{}
	for _, layer := range plan.Layers {
		for _, v := range layer.Vars {
			sources[v.Name] = v1alpha1.EnvSource(layer.Source)
		}
	}
	var kept []v1alpha1.ResolvedEnvVar
	var stripped []string
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if plan.Blocks(name) {
			stripped = append(stripped, name)
			continue
		}
		kept = append(kept, v1alpha1.ResolvedEnvVar{Name: name, Source: sources[name]})
	}
	e := &v1alpha1.ResolvedEnvironment{Name: o.Effective().Name, Trusted: plan.Trusted}
	e.Env, e.OmittedEnv = bounds.Variables(kept)
	e.StrippedEnv, e.OmittedStrippedEnv = bounds.Names(stripped)
	return e
}

// copied keeps of the objects what pods and calls are made from.
func (c *Context) copied() Context {
	var kept Context
	if c.Named != nil {
		named := copiedEnvironment(c.Named)
		kept.Named = &named
	}
	for i := range c.Defaults {
		kept.Defaults = append(kept.Defaults, copiedEnvironment(&c.Defaults[i]))
	}
	if c.Skill != nil {
		kept.Skill = &v1alpha1.Skill{Spec: *c.Skill.Spec.DeepCopy()}
		kept.Skill.Namespace, kept.Skill.Name, kept.Skill.UID = c.Skill.Namespace, c.Skill.Name, c.Skill.UID
	}
	return kept
}

func copiedEnvironment(e *v1alpha1.ExecutionEnvironment) v1alpha1.ExecutionEnvironment {
	kept := v1alpha1.ExecutionEnvironment{Spec: *e.Spec.DeepCopy()}
	kept.Namespace, kept.Name, kept.UID, kept.Labels = e.Namespace, e.Name, e.UID, maps.Clone(e.Labels)
	return kept
}

// holds says that the session's pods have the value of a reference. A session that hasn't begun has none.
func (o *Origin) holds(ref string) bool {
	return o != nil && slices.ContainsFunc(o.Refs, func(v corev1.EnvVar) bool { return v.Name == ref })
}

// Encode writes an origin. The error is the user's: the environments and the skill are too large.
func (o *Origin) Encode() ([]byte, error) {
	return encode(o, "the environments, the skill and the variables of the session")
}

// DecodeOrigin reads what Encode wrote.
func DecodeOrigin(raw []byte) (*Origin, error) {
	o := &Origin{}
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, fmt.Errorf("decode what the session began with: %w", err)
	}
	return o, nil
}
