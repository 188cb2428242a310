package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/jobspec"
)

func (r *ToolCallReconciler) whereabouts(ctx context.Context, call *v1alpha1.ToolCall) (*decide.Where, error) {
	w := &decide.Where{}
	if ref := call.Spec.EnvironmentRef; ref != nil {
		w.Named = &v1alpha1.ExecutionEnvironment{}
		if err := r.getOrReject(ctx, call.Namespace, ref.Name, w.Named, v1alpha1.ReasonEnvironmentNotFound); err != nil {
			return nil, err
		}
	}
	if ref := call.Spec.SkillRef; ref != nil {
		w.Skill = &v1alpha1.Skill{}
		if err := r.getOrReject(ctx, call.Namespace, ref.Name, w.Skill, v1alpha1.ReasonSkillNotFound); err != nil {
			return nil, err
		}
	}
	fallback, err := r.defaultEnvironment(ctx, call.Namespace, w.Named == nil)
	if err != nil {
		return nil, err
	}
	w.Default = fallback
	if w.Effective() == nil {
		return nil, decide.NoEnvironment(call.Namespace)
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
	return decide.DefaultEnvironment(list.Items)
}

// poolTemplate is what the waiting pods of an environment are made from.
type poolTemplate struct {
	jobspec.WarmInput
}

// poolTemplate has every variable in it that a call in the environment may need, whoever makes the call. A pod
// is replaced when the environment, the namespace's default one or the policy changes.
func (r *Shared) poolTemplate(ctx context.Context, env, fallback *v1alpha1.ExecutionEnvironment, runtime jobspec.Runtime) (*poolTemplate, error) {
	policy, err := policyFor(ctx, r, env.Spec.PolicyName())
	if err != nil {
		return nil, err
	}
	var basis []string
	if policy != nil {
		basis = append(basis, fmt.Sprint("policy ", policy.UID, policy.Generation))
	}
	refs := map[string]corev1.EnvVar{}
	in := envresolve.Input{Named: decide.Environment(env, refs), TrustedRequested: true}
	if fallback != nil && fallback.UID != env.UID {
		basis = append(basis, fmt.Sprint("default ", fallback.UID, fallback.Generation))
		in.Default = decide.Environment(fallback, refs)
	}
	plan := envresolve.MakePlan(in)
	template := &poolTemplate{jobspec.WarmInput{Environment: env, Basis: basis, Runtime: runtime}}
	for _, name := range plan.NeededRefs() {
		template.Refs = append(template.Refs, refs[name])
	}
	return template, nil
}
