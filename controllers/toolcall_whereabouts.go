package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/jobspec"
)

// whereabouts are the objects that a call's context comes from.
type whereabouts struct {
	named, fallback *v1alpha1.ExecutionEnvironment
	skill           *v1alpha1.Skill
	trusted         bool
}

// effective is the environment that image, pod settings and policy come from.
func (w *whereabouts) effective() *v1alpha1.ExecutionEnvironment {
	if w.named != nil {
		return w.named
	}
	return w.fallback
}

func (r *ToolCallReconciler) whereabouts(ctx context.Context, call *v1alpha1.ToolCall) (*whereabouts, error) {
	w := &whereabouts{}
	if ref := call.Spec.EnvironmentRef; ref != nil {
		w.named = &v1alpha1.ExecutionEnvironment{}
		if err := r.getOrReject(ctx, call.Namespace, ref.Name, w.named, v1alpha1.ReasonEnvironmentNotFound); err != nil {
			return nil, err
		}
	}
	if ref := call.Spec.SkillRef; ref != nil {
		w.skill = &v1alpha1.Skill{}
		if err := r.getOrReject(ctx, call.Namespace, ref.Name, w.skill, v1alpha1.ReasonSkillNotFound); err != nil {
			return nil, err
		}
	}
	fallback, err := r.defaultEnvironment(ctx, call.Namespace, w.named == nil)
	if err != nil {
		return nil, err
	}
	w.fallback = fallback
	if w.effective() == nil {
		return nil, reject(v1alpha1.ReasonNoEnvironment, "the call names no environment and namespace %q has no default one: set spec.environmentRef, or annotate an ExecutionEnvironment with %s: \"true\"", call.Namespace, v1alpha1.AnnotationDefaultEnvironment)
	}
	return w, nil
}

// defaultEnvironment finds the namespace's default. With two of them nobody can say which variables a call
// should get, so that no call runs, also one that names its environment: it would get the default's too.
// needed says that the call can't run without one.
func (r *Shared) defaultEnvironment(ctx context.Context, namespace string, needed bool) (*v1alpha1.ExecutionEnvironment, error) {
	list := &v1alpha1.ExecutionEnvironmentList{}
	if err := r.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{indexDefault: "true"}); err != nil {
		return nil, fmt.Errorf("list default environments: %w", err)
	}
	if len(list.Items) == 0 && needed {
		// The cache may not have it yet: often it was created a moment before the call. The API server knows
		// no index of annotations.
		if err := r.Live.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list environments: %w", err)
		}
		list.Items = slices.DeleteFunc(list.Items, func(e v1alpha1.ExecutionEnvironment) bool {
			return e.Annotations[v1alpha1.AnnotationDefaultEnvironment] != "true"
		})
	}
	switch len(list.Items) {
	case 0:
		return nil, nil
	case 1:
		return &list.Items[0], nil
	default:
		return nil, reject(v1alpha1.ReasonInvalidEnvironment, "%s", duplicateDefault(list.Items))
	}
}

func duplicateDefault(items []v1alpha1.ExecutionEnvironment) string {
	names := make([]string, 0, len(items))
	for i := range items {
		names = append(names, items[i].Name)
	}
	slices.Sort(names)
	return fmt.Sprintf("ExecutionEnvironments %q are all annotated with %s: \"true\"; keep it on one of them", names, v1alpha1.AnnotationDefaultEnvironment)
}

// plan puts the layers together. Values that the kubelet has to look up go into the pod under internal
// names, and only those that can reach the process.
func (w *whereabouts) plan(call *v1alpha1.ToolCall, policy *guards.Policy) (envresolve.Plan, []corev1.EnvVar) {
	refs := map[string]corev1.EnvVar{}
	in := envresolve.Input{
		Default: environment(w.fallback, refs),
		Named:   environment(w.named, refs),
		Call: envresolve.Call{
			Named:      w.named != nil,
			WorkingDir: call.Spec.WorkingDir,
			Vars:       jobspec.CallLayer(call).Vars,
		},
		TrustedRequested: w.trusted,
		Blocklist:        policy.EnvBlocklist(),
	}
	if w.skill != nil {
		in.Skill = variables(w.skill.Spec.Env, refs)
	}
	plan := envresolve.MakePlan(in)
	var needed []corev1.EnvVar
	for _, name := range plan.NeededRefs() {
		needed = append(needed, refs[name])
	}
	return plan, needed
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

// poolTemplate is what the waiting pods of an environment are made from.
type poolTemplate struct {
	jobspec.WarmInput
}

// poolTemplate has every variable in it that a call in the environment may need, whoever makes the call. A pod
// is replaced when the environment, the namespace's default one or the policy changes.
func (r *Shared) poolTemplate(ctx context.Context, env, fallback *v1alpha1.ExecutionEnvironment, runtime jobspec.Runtime) (*poolTemplate, error) {
	policy, err := policyFor(ctx, r, env.Spec.PolicyName)
	if err != nil {
		return nil, err
	}
	var basis []string
	if policy != nil {
		basis = append(basis, fmt.Sprint("policy ", policy.UID, policy.Generation))
	}
	refs := map[string]corev1.EnvVar{}
	in := envresolve.Input{Named: environment(env, refs), TrustedRequested: true}
	if fallback != nil && fallback.UID != env.UID {
		basis = append(basis, fmt.Sprint("default ", fallback.UID, fallback.Generation))
		in.Default = environment(fallback, refs)
	}
	plan := envresolve.MakePlan(in)
	template := &poolTemplate{jobspec.WarmInput{Environment: env, Basis: basis, Runtime: runtime}}
	for _, name := range plan.NeededRefs() {
		template.Refs = append(template.Refs, refs[name])
	}
	return template, nil
}
