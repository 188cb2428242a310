package decide

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/jobspec"
)

// Where are the objects that a call's context comes from.
type Where struct {
	// Named is the environment that the call names, Default the namespace's; either may be nil.
	Named, Default *v1alpha1.ExecutionEnvironment
	Skill          *v1alpha1.Skill
	// Trusted is the call's own field, once admission vouches for it.
	Trusted bool
}

// Effective is the environment that image, pod settings and policy come from.
func (w *Where) Effective() *v1alpha1.ExecutionEnvironment {
	if w.Named != nil {
		return w.Named
	}
	return w.Default
}

// DefaultEnvironment gives the namespace's default of those that are marked as it, nil when none is. With two of
// them nobody can say which variables a call should get.
func DefaultEnvironment(marked []v1alpha1.ExecutionEnvironment) (*v1alpha1.ExecutionEnvironment, error) {
	switch len(marked) {
	case 0:
		return nil, nil
	case 1:
		return &marked[0], nil
	default:
		return nil, Refuse(v1alpha1.ReasonInvalidEnvironment, "%s", DuplicateDefault(marked))
	}
}

// DuplicateDefault says which environments are all marked as the default.
func DuplicateDefault(items []v1alpha1.ExecutionEnvironment) string {
	names := make([]string, 0, len(items))
	for i := range items {
		names = append(names, items[i].Name)
	}
	slices.Sort(names)
	return fmt.Sprintf("ExecutionEnvironments %q are all annotated with %s: \"true\"; keep it on one of them", names, v1alpha1.AnnotationDefaultEnvironment)
}

// NoEnvironment refuses a call that neither names an environment nor finds a default one.
func NoEnvironment(namespace string) error {
	return Refuse(v1alpha1.ReasonNoEnvironment, "the call names no environment and namespace %q has no default one: set spec.environmentRef, or annotate an ExecutionEnvironment with %s: \"true\"", namespace, v1alpha1.AnnotationDefaultEnvironment)
}

// NotThere refuses a call that names an object which doesn't exist.
func NotThere(reason, kind, name, namespace string) error {
	return Refuse(reason, "there is no %s %q in namespace %q", kind, name, namespace)
}

// Plan puts the layers together. Values that the kubelet has to look up go into the pod under internal
// names, and only those that can reach the process.
func (w *Where) Plan(call *v1alpha1.ToolCall, policy *guards.Policy) (envresolve.Plan, []corev1.EnvVar) {
	refs := map[string]corev1.EnvVar{}
	in := envresolve.Input{
		Default: Environment(w.Default, refs),
		Named:   Environment(w.Named, refs),
		Call: envresolve.Call{
			Named:      w.Named != nil,
			WorkingDir: call.Spec.WorkingDir,
			Vars:       jobspec.CallLayer(call).Vars,
		},
		TrustedRequested: w.Trusted,
		Blocklist:        policy.EnvBlocklist(),
	}
	if w.Skill != nil {
		in.Skill = variables(w.Skill.Spec.Env, refs)
	}
	plan := envresolve.MakePlan(in)
	var needed []corev1.EnvVar
	for _, name := range plan.NeededRefs() {
		needed = append(needed, refs[name])
	}
	return plan, needed
}

// Environment translates, and files what the kubelet has to look up in refs.
func Environment(e *v1alpha1.ExecutionEnvironment, refs map[string]corev1.EnvVar) *envresolve.Environment {
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

// variables translates, and files each reference under an internal name that follows from what it refers to:
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
		name := jobspec.RefName(source.String())
		refs[name] = corev1.EnvVar{Name: name, ValueFrom: source}
		list = append(list, envresolve.Var{Name: v.Name, Ref: name, Optional: optional(v.ValueFrom)})
	}
	return list
}

func optional(from *v1alpha1.EnvVarSource) bool {
	switch {
	case from.SecretKeyRef != nil:
		return from.SecretKeyRef.Optional != nil && *from.SecretKeyRef.Optional
	case from.ConfigMapKeyRef != nil:
		return from.ConfigMapKeyRef.Optional != nil && *from.ConfigMapKeyRef.Optional
	default:
		return false
	}
}
