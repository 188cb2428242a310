package decide

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
)

// DefaultStartTimeoutSeconds holds for an environment that sets none.
const DefaultStartTimeoutSeconds = 120

// StartTimeoutSeconds is how long a call of the environment may wait for its process to start; nil stands for an
// environment that nobody knows yet.
func StartTimeoutSeconds(env *v1alpha1.ExecutionEnvironment) int32 {
	if env == nil {
		return DefaultStartTimeoutSeconds
	}
	return ptr.Deref(env.Spec.StartTimeoutSeconds, DefaultStartTimeoutSeconds)
}

// Context holds the objects that a call's image, variables and directory come from.
type Context struct {
	// Named is the environment that the call names; nil when it names none, or there is none of that name.
	Named *v1alpha1.ExecutionEnvironment
	// Defaults are the environments that the namespace marks as its default.
	Defaults []v1alpha1.ExecutionEnvironment
	// Skill is the one that the call names; nil as for Named.
	Skill *v1alpha1.Skill
}

// Effective is the environment that image, pod settings and policy come from; nil when there is none.
func (c *Context) Effective() *v1alpha1.ExecutionEnvironment {
	if c.Named != nil {
		return c.Named
	}
	return c.DefaultEnvironment()
}

// DefaultEnvironment is the namespace's default; nil unless exactly one is marked.
func (c *Context) DefaultEnvironment() *v1alpha1.ExecutionEnvironment {
	if len(c.Defaults) != 1 {
		return nil
	}
	return &c.Defaults[0]
}

// check says what of the context is missing or ambiguous. With two default environments nobody can say which
// variables a call gets, also one that names its environment: it would get the default's too.
func (c *Context) check(r *request) error {
	if ref := r.environmentRef; ref != nil && c.Named == nil {
		return Refuse(v1alpha1.ReasonEnvironmentNotFound, "there is no ExecutionEnvironment %q in namespace %q", ref.Name, r.namespace)
	}
	if ref := r.skillRef; ref != nil && c.Skill == nil {
		return Refuse(v1alpha1.ReasonSkillNotFound, "there is no Skill %q in namespace %q", ref.Name, r.namespace)
	}
	if message := DuplicateDefault(c.Defaults); message != "" {
		return Refuse(v1alpha1.ReasonInvalidEnvironment, "%s", message)
	}
	if c.Effective() == nil {
		return Refuse(v1alpha1.ReasonNoEnvironment, "the %s names no environment and namespace %q has no default one: set spec.environmentRef, or annotate an ExecutionEnvironment with %s: \"true\"", r.of, r.namespace, v1alpha1.AnnotationDefaultEnvironment)
	}
	return nil
}

// DuplicateDefault says which environments are all marked as the default; empty when at most one is.
func DuplicateDefault(marked []v1alpha1.ExecutionEnvironment) string {
	if len(marked) < 2 {
		return ""
	}
	names := make([]string, 0, len(marked))
	for i := range marked {
		names = append(names, marked[i].Name)
	}
	slices.Sort(names)
	return fmt.Sprintf("ExecutionEnvironments %q are all annotated with %s: \"true\"; keep it on one of them", names, v1alpha1.AnnotationDefaultEnvironment)
}

// plan puts the layers of variables together. Values that the kubelet has to look up go into the pod under internal
// names, and only those that can reach the process.
func (c *Context) plan(r *request, blocklist []string) (envresolve.Plan, []corev1.EnvVar) {
	refs := map[string]corev1.EnvVar{}
	in := envresolve.Input{
		Default:          environment(c.DefaultEnvironment(), refs),
		Named:            environment(c.Named, refs),
		Call:             envresolve.Call{WorkingDir: r.workingDir, Vars: callVariables(r.env)},
		TrustedRequested: r.trusted,
		Blocklist:        blocklist,
	}
	if c.Skill != nil {
		in.Skill = variables(c.Skill.Spec.Env, refs)
	}
	if c.Named != nil {
		in.Named.Vars = append(in.Named.Vars, secretsOf(c.Named, r.tool, refs)...)
	} else if in.Default != nil {
		in.Default.Vars = append(in.Default.Vars, secretsOf(c.DefaultEnvironment(), r.tool, refs)...)
	}
	plan := envresolve.MakePlan(in)
	if r.redact {
		plan.Known = c.known()
	}
	return plan, needed(plan, refs)
}

// redacts says that a policy has the values of Secrets replaced in output; nil stands for the built-in defaults.
func redacts(policy *v1alpha1.ExecutionPolicy) bool {
	return policy == nil || policy.Spec.Output == nil || policy.Spec.Output.Redaction != v1alpha1.RedactOff
}

// known are the references to all Secrets that pods of the context may have: what one call left in a file, another of the
// same session may print.
func (c *Context) known() []envresolve.Known {
	var list []envresolve.Known
	add := func(name string, ref corev1.EnvVar) {
		k := envresolve.Known{Name: name, Ref: ref.Name}
		if !slices.ContainsFunc(list, func(have envresolve.Known) bool { return have.Ref == k.Ref }) {
			list = append(list, k)
		}
	}
	addVariables := func(env []v1alpha1.EnvVar) {
		for i := range env {
			if from := env[i].ValueFrom; from != nil && from.SecretKeyRef != nil && ptr.Deref(env[i].Redact, true) {
				add(env[i].Name, secretRef(from.SecretKeyRef))
			}
		}
	}
	for _, secret := range c.Effective().Spec.Secrets {
		if ptr.Deref(secret.Redact, true) {
			add(secret.Name, toolSecretRef(&secret.SecretKeyRef))
		}
	}
	if c.Named != nil {
		addVariables(c.Named.Spec.Env)
	}
	if c.Skill != nil {
		addVariables(c.Skill.Spec.Env)
	}
	if byDefault := c.DefaultEnvironment(); byDefault != nil {
		addVariables(byDefault.Spec.Env)
	}
	return list
}

// secretsOf are the variables of the environment's secrets that calls of a tool get. They come after its other variables,
// so that they count.
func secretsOf(e *v1alpha1.ExecutionEnvironment, tool string, refs map[string]corev1.EnvVar) []envresolve.Var {
	var list []envresolve.Var
	for i := range e.Spec.Secrets {
		s := &e.Spec.Secrets[i]
		if !slices.Contains(s.Tools, tool) {
			continue
		}
		ref := toolSecretRef(&s.SecretKeyRef)
		refs[ref.Name] = ref
		list = append(list, envresolve.Var{
			Name: s.Name, Ref: ref.Name, Optional: ptr.Deref(s.SecretKeyRef.Optional, false), File: s.As == v1alpha1.SecretAsFile,
			Apart: true, RefersTo: fmt.Sprintf("key %q of Secret %q", s.SecretKeyRef.Key, s.SecretKeyRef.Name),
		})
	}
	return list
}

// withSecrets adds to what pods resolve that take calls of any tool the environment's secrets, but for those with a name
// that the plan blocks.
func withSecrets(refs []corev1.EnvVar, e *v1alpha1.ExecutionEnvironment, plan *envresolve.Plan) []corev1.EnvVar {
	for i := range e.Spec.Secrets {
		s := &e.Spec.Secrets[i]
		if !plan.Blocks(s.Name) {
			refs = append(refs, toolSecretRef(&s.SecretKeyRef))
		}
	}
	slices.SortFunc(refs, func(a, b corev1.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(refs, func(a, b corev1.EnvVar) bool { return a.Name == b.Name })
}

// toolSecretRef is the variable for one of an environment's secrets. The kubelet starts the pod without a value that is
// missing: the pod takes calls that don't need it. One that does fails in the runner.
func toolSecretRef(key *corev1.SecretKeySelector) corev1.EnvVar {
	optional := key.DeepCopy()
	optional.Optional = ptr.To(true)
	return secretRef(optional)
}

// secretRef is the variable that the kubelet resolves from a Secret.
func secretRef(key *corev1.SecretKeySelector) corev1.EnvVar {
	source := &corev1.EnvVarSource{SecretKeyRef: key}
	return corev1.EnvVar{Name: wire.RefName(source.String()), ValueFrom: source}
}

// PoolRefs are the variables that the kubelet resolves in an environment's waiting pods: those that an untrusted call
// may get. A blocked one isn't in a pod that anybody's call may be given.
func PoolRefs(env, defaultEnv *v1alpha1.ExecutionEnvironment, blocklist []string) []corev1.EnvVar {
	refs := map[string]corev1.EnvVar{}
	in := envresolve.Input{
		Named:     environment(env, refs),
		Blocklist: blocklist,
	}
	if defaultEnv != nil && defaultEnv.UID != env.UID {
		in.Default = environment(defaultEnv, refs)
	}
	plan := envresolve.MakePlan(in)
	return withSecrets(needed(plan, refs), env, &plan)
}

func needed(plan envresolve.Plan, refs map[string]corev1.EnvVar) []corev1.EnvVar {
	var list []corev1.EnvVar
	for _, name := range plan.NeededRefs() {
		list = append(list, refs[name])
	}
	return list
}

func environment(e *v1alpha1.ExecutionEnvironment, refs map[string]corev1.EnvVar) *envresolve.Environment {
	if e == nil {
		return nil
	}
	return &envresolve.Environment{
		Name:           e.Name,
		Vars:           variables(e.Spec.Env, refs),
		WorkingDir:     e.Spec.WorkingDir,
		InheritMinimal: e.Spec.InheritEnv == v1alpha1.InheritMinimal,
		AllowedPaths:   e.Spec.AllowedPaths,
	}
}

// variables translates a layer, and files each reference under an internal name that follows from what it refers to:
// the same in every pod and for every call.
func variables(env []v1alpha1.EnvVar, refs map[string]corev1.EnvVar) []envresolve.Var {
	list := make([]envresolve.Var, 0, len(env))
	for _, v := range env {
		if v.ValueFrom == nil {
			list = append(list, envresolve.Var{Name: v.Name, Value: v.Value})
			continue
		}
		source := &corev1.EnvVarSource{
			SecretKeyRef:    v.ValueFrom.SecretKeyRef,
			ConfigMapKeyRef: v.ValueFrom.ConfigMapKeyRef,
			FieldRef:        v.ValueFrom.FieldRef,
		}
		name := wire.RefName(source.String())
		refs[name] = corev1.EnvVar{Name: name, ValueFrom: source}
		list = append(list, envresolve.Var{Name: v.Name, Ref: name, Optional: isOptional(v.ValueFrom)})
	}
	return list
}

func isOptional(from *v1alpha1.EnvVarSource) bool {
	secret, config := from.SecretKeyRef, from.ConfigMapKeyRef
	return secret != nil && ptr.Deref(secret.Optional, false) || config != nil && ptr.Deref(config.Optional, false)
}

// callVariables is the layer of a call's own variables, and its session's.
func callVariables(env []v1alpha1.CallEnvVar) []envresolve.Var {
	list := make([]envresolve.Var, 0, len(env))
	for _, v := range env {
		list = append(list, envresolve.Var{Name: v.Name, Value: v.Value})
	}
	return list
}
