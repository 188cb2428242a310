package apicache

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/jobspec"
)

func TestEachPhaseIsEitherInFlightOrFinished(t *testing.T) {
	t.Parallel()
	for _, phase := range append(v1alpha1.TerminalPhases(), "", v1alpha1.PhasePending, v1alpha1.PhaseRunning) {
		of := fields.Set{fieldPhase: string(phase)}
		if InFlight().Matches(of) == phase.Terminal() || Finished().Matches(of) != phase.Terminal() {
			t.Errorf("%q: in flight %t, finished %t", phase, InFlight().Matches(of), Finished().Matches(of))
		}
	}
}

func TestTheCacheIsOfTheNamespacesThatTheOperatorWorksIn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		namespaces, want []string
	}{
		"the whole cluster": {nil, nil},
		"one":               {[]string{"a"}, []string{"a"}},
		"two":               {[]string{"b", "a"}, []string{"a", "b"}},
	} {
		o := Options(tc.namespaces)
		if got := slices.Sorted(maps.Keys(o.DefaultNamespaces)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q", name, got)
		}
		for kind, by := range o.ByObject {
			if by.Namespaces != nil {
				t.Errorf("%s: %T has namespaces of its own: %v", name, kind, by.Namespaces)
			}
		}
	}
}

// byKind finds how a kind is cached.
func byKind[T client.Object](t *testing.T) cache.ByObject {
	t.Helper()
	for kind, by := range Options(nil).ByObject {
		if _, ok := kind.(T); ok {
			return by
		}
	}
	t.Fatalf("nothing is said of %T", *new(T))
	return cache.ByObject{}
}

func TestOnlyWhatTheOperatorMadeIsCached(t *testing.T) {
	t.Parallel()
	own, other := labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}, labels.Set{v1alpha1.LabelManagedBy: "other"}
	for kind, by := range map[string]cache.ByObject{
		"Jobs": byKind[*batchv1.Job](t), "pods": byKind[*corev1.Pod](t), "NetworkPolicies": byKind[*networkingv1.NetworkPolicy](t),
	} {
		if !by.Label.Matches(own) || by.Label.Matches(other) || by.Label.Matches(labels.Set{}) {
			t.Errorf("%s are selected by %s", kind, by.Label)
		}
	}
	pods := byKind[*corev1.Pod](t).Field
	for phase, cached := range map[corev1.PodPhase]bool{corev1.PodPending: true, corev1.PodRunning: true, corev1.PodFailed: true, corev1.PodSucceeded: false} {
		if pods.Matches(fields.Set{"status.phase": string(phase)}) != cached {
			t.Errorf("pods that are %s are cached: %t", phase, !cached)
		}
	}
	if calls := byKind[*v1alpha1.ToolCall](t).Field; calls.String() != InFlight().String() {
		t.Errorf("calls are selected by %s", calls)
	}
}

// Of the admission policies of a cluster, those count that vouch for requesters.
func TestOnlyTheAdmissionPoliciesThatVouchAreKeptWhole(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{
		access.CheckPolicy: true, access.SessionCheckPolicy: true, access.SessionUpdatePolicy: true, "another": false,
	} {
		object := metav1.ObjectMeta{Name: name, Annotations: map[string]string{"large": "x"}}
		validating := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: object, Spec: admissionv1.ValidatingAdmissionPolicySpec{FailurePolicy: ptr.To(admissionv1.Fail)}}
		checks := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: object, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name}}
		for o, by := range map[client.Object]cache.ByObject{
			validating: byKind[*admissionv1.ValidatingAdmissionPolicy](t), checks: byKind[*admissionv1.ValidatingAdmissionPolicyBinding](t),
		} {
			if _, err := by.Transform(o); err != nil || by.Field != nil {
				t.Fatalf("%T: %v, selected by %v", o, err, by.Field)
			}
		}
		kept := []bool{validating.Spec.FailurePolicy != nil, checks.Spec.PolicyName != ""}
		for i, is := range kept {
			if is != whole {
				t.Errorf("%s, kind %d: kept %t", name, i, is)
			}
		}
	}
}

func TestTheCacheKeepsLittleOfEachObject(t *testing.T) {
	t.Parallel()
	managed := []metav1.ManagedFieldsEntry{{Manager: "x"}}
	call := callOf(v1alpha1.ToolCallSpec{Stdin: strings.Repeat("x", maxCachedInput+1)})
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "call"}}}, Status: corev1.PodStatus{Message: "m"}}
	job := &batchv1.Job{Spec: batchv1.JobSpec{Parallelism: ptr.To(int32(1)), Suspend: ptr.To(true), Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "call"}}},
	}}}
	for _, o := range []client.Object{call, pod, job} {
		o.SetManagedFields(managed)
	}
	for _, tc := range []struct {
		by cache.ByObject
		o  client.Object
	}{{byKind[*v1alpha1.ToolCall](t), call}, {byKind[*corev1.Pod](t), pod}, {byKind[*batchv1.Job](t), job}} {
		got, err := tc.by.Transform(tc.o)
		if err != nil || got != any(tc.o) || len(tc.o.GetManagedFields()) != 0 {
			t.Errorf("%T: %v, %v", tc.o, err, tc.o.GetManagedFields())
		}
		once := tc.o.DeepCopyObject()
		again, err := tc.by.Transform(tc.o)
		if diff := cmp.Diff(any(once), again); err != nil || diff != "" {
			t.Errorf("%T, a second time: %v, %s", tc.o, err, diff)
		}
		if _, err := tc.by.Transform("x"); err == nil {
			t.Errorf("the transformation of %T takes anything", tc.o)
		}
	}
	if call.Spec.Stdin != "" {
		t.Error("a call keeps its input")
	}
	if diff := cmp.Diff(corev1.PodSpec{NodeName: "node"}, pod.Spec); diff != "" || pod.Status.Message != "m" {
		t.Errorf("a pod: %s", diff)
	}
	if diff := cmp.Diff(batchv1.JobSpec{Suspend: ptr.To(true)}, job.Spec); diff != "" {
		t.Errorf("a Job: %s", diff)
	}
}

func TestWhatObjectsAreFoundBy(t *testing.T) {
	t.Parallel()
	owned := func(kind string, controller bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "o", UID: "o-uid", Controller: &controller}}
	}
	call := func(phase v1alpha1.Phase, job, env string) *v1alpha1.ToolCall {
		c := callOf(v1alpha1.ToolCallSpec{})
		c.Status.Phase, c.Status.Job, c.Status.Environment = phase, job, &v1alpha1.ResolvedEnvironment{Name: env}
		return c
	}
	pool := func(owners []metav1.OwnerReference) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{jobspec.AnnotationPool: "env"}, OwnerReferences: owners}}
	}
	bare := callOf(v1alpha1.ToolCallSpec{})
	bare.Status.Job = "job"
	marked := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}}}
	unmarked := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationDefaultEnvironment: "false"}}}
	for name, tc := range map[string]struct {
		index  client.IndexerFunc
		object client.Object
		want   []string
	}{
		"a pod of a Job":                        {podOwner, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("Job", true)}}, []string{"o-uid"}},
		"a pod of something else":               {podOwner, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet", true)}}, nil},
		"a pod that refers to a Job":            {podOwner, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("Job", false)}}, nil},
		"a pod of nobody":                       {podOwner, &corev1.Pod{}, nil},
		"a Job of a call":                       {ownerCall, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ToolCall", true)}}, []string{"o-uid"}},
		"a Job of something else":               {ownerCall, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("CronJob", true)}}, nil},
		"a Job of nobody":                       {ownerCall, &batchv1.Job{}, nil},
		"a Job of a pool":                       {poolOf, pool(nil), []string{"env"}},
		"a Job of a pool that a call has":       {poolOf, pool(owned("ToolCall", true)), nil},
		"a Job of no pool":                      {poolOf, &batchv1.Job{}, nil},
		"no Job at all":                         {poolOf, &corev1.Pod{}, nil},
		"a call that runs, by environment":      {activeEnvironment, call(v1alpha1.PhaseRunning, "job", "env"), []string{"env"}},
		"a call without a Job, by environment":  {activeEnvironment, call(v1alpha1.PhasePending, "", "env"), nil},
		"a call that ended, by environment":     {activeEnvironment, call(v1alpha1.PhaseFailed, "job", "env"), nil},
		"a call without a name, by environment": {activeEnvironment, call(v1alpha1.PhaseRunning, "job", ""), nil},
		"a call without any, by environment":    {activeEnvironment, bare, nil},
		"no call, by environment":               {activeEnvironment, &corev1.Pod{}, nil},
		"a call that runs, by Job":              {jobOfCall, call(v1alpha1.PhaseRunning, "job", "env"), []string{"job"}},
		"a call without a Job, by Job":          {jobOfCall, call(v1alpha1.PhasePending, "", "env"), nil},
		"a call that ended, by Job":             {jobOfCall, call(v1alpha1.PhaseSucceeded, "job", "env"), nil},
		"no call, by Job":                       {jobOfCall, &corev1.Pod{}, nil},
		"a default environment":                 {defaultValue(v1alpha1.AnnotationDefaultEnvironment), marked, []string{"true"}},
		"an environment that isn't the default": {defaultValue(v1alpha1.AnnotationDefaultEnvironment), unmarked, nil},
		"an environment without a mark":         {defaultValue(v1alpha1.AnnotationDefaultEnvironment), &v1alpha1.ExecutionEnvironment{}, nil},
	} {
		if got := tc.index(tc.object); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestADecisionIsKeptWithoutWhatNobodyReads(t *testing.T) {
	t.Parallel()
	decision := &v1alpha1.ToolCallApproval{ObjectMeta: metav1.ObjectMeta{
		Name: "d", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{}},
	}}
	decision.Spec.Approver = &v1alpha1.Requester{Username: "u", UID: "1", Groups: []string{"g"}, Extra: map[string]v1alpha1.ExtraValue{"e": {"v"}}}
	want := &v1alpha1.ToolCallApproval{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	want.Spec.Approver = &v1alpha1.Requester{Username: "u", UID: "1"}
	got, err := byKind[*v1alpha1.ToolCallApproval](t).Transform(decision)
	if diff := cmp.Diff(any(want), got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}
