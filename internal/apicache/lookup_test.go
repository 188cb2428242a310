package apicache

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
)

var errDown = errors.New("the API server is down")

// stored is what a cache holds, with the operator's own indexes, or what the API server has.
func stored(t *testing.T, indexed bool, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	if indexed {
		b = b.WithIndex(&v1alpha1.ExecutionEnvironment{}, IndexDefault, defaultValue(v1alpha1.AnnotationDefaultEnvironment)).
			WithIndex(&v1alpha1.ExecutionPolicy{}, IndexDefault, defaultValue(v1alpha1.AnnotationDefaultPolicy)).
			WithIndex(&corev1.Pod{}, IndexPodOwner, podOwner).
			WithIndex(&v1alpha1.ToolCall{}, IndexCallJob, jobOfCall)
	}
	return b.Build()
}

// down is a reader that gives no answer.
func down(c client.WithWatch) client.Reader {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errDown
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errDown
		},
	})
}

// unasked is a reader that must not be needed.
func unasked(t *testing.T) client.Reader {
	return interceptor.NewClient(stored(t, true), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			t.Errorf("%T %s was asked for past the cache", o, key)
			return errDown
		},
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			t.Errorf("%T was asked for past the cache", list)
			return errDown
		},
	})
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func environment(name string, isDefault bool) *v1alpha1.ExecutionEnvironment {
	env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if isDefault {
		env.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}
	}
	return env
}

func TestWhatTheCacheDoesNotHaveIsLookedForPastIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	have, none := stored(t, true, environment("env", false)), stored(t, true)
	for name, tc := range map[string]struct {
		cache, live client.Reader
		found       bool
		err         error
	}{
		"in the cache":                          {have, unasked(t), true, nil},
		"created a moment before":               {none, have, true, nil},
		"nowhere":                               {none, none, false, nil},
		"no answer of the cache":                {down(have), unasked(t), false, errDown},
		"not in the cache, and no answer of it": {none, down(have), false, errDown},
	} {
		env := &v1alpha1.ExecutionEnvironment{}
		found, err := Reader{Reader: tc.cache, Live: tc.live}.Find(ctx, named("env"), env)
		if found != tc.found || !errors.Is(err, tc.err) || found && env.Name != "env" {
			t.Errorf("%s: %t, %v", name, found, err)
		}
	}
}

func TestTheDefaultEnvironmentsOfANamespace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	elsewhere := environment("e", true)
	elsewhere.Namespace = "other"
	unsaid := environment("u", false)
	unsaid.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "yes"}
	one := stored(t, true, environment("a", true), environment("b", false), elsewhere, unsaid)
	two := stored(t, true, environment("a", true), environment("c", true))
	none := stored(t, true, environment("b", false), elsewhere, unsaid)
	for name, tc := range map[string]struct {
		cache, live client.Reader
		needed      bool
		want        []string
		err         error
	}{
		"one":                                 {one, unasked(t), true, []string{"a"}, nil},
		"two":                                 {two, unasked(t), true, []string{"a", "c"}, nil},
		"none, and none is needed":            {none, unasked(t), false, nil, nil},
		"none, though one is needed":          {none, none, true, nil, nil},
		"one that the cache doesn't show yet": {none, one, true, []string{"a"}, nil},
		"no answer of the cache":              {down(one), unasked(t), true, nil, errDown},
		"no answer past it":                   {none, down(one), true, nil, errDown},
	} {
		got, err := Reader{Reader: tc.cache, Live: tc.live}.DefaultEnvironments(ctx, "ns", tc.needed)
		var names []string
		for i := range got {
			names = append(names, got[i].Name)
		}
		slices.Sort(names)
		if diff := cmp.Diff(tc.want, names); diff != "" || !errors.Is(err, tc.err) {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

func TestThePoliciesThatMayApply(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	policy := func(name string, isDefault bool) *v1alpha1.ExecutionPolicy {
		p := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if isDefault {
			p.Annotations = map[string]string{v1alpha1.AnnotationDefaultPolicy: "true"}
		}
		return p
	}
	all := stored(t, true, policy("named", false), policy("default", true))
	none := stored(t, true)
	naming := environment("env", false)
	naming.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "named"}
	for name, tc := range map[string]struct {
		cache, live client.Reader
		env         *v1alpha1.ExecutionEnvironment
		named       bool
		defaults    int
		err         error
	}{
		"the one that is named":                {all, unasked(t), naming, true, 0, nil},
		"the one that is named, a moment ago":  {none, all, naming, true, 0, nil},
		"one that isn't there":                 {none, none, naming, false, 0, nil},
		"the default one":                      {all, unasked(t), environment("env", false), false, 1, nil},
		"no default one":                       {none, unasked(t), environment("env", false), false, 0, nil},
		"no answer about the named one":        {down(all), unasked(t), naming, false, 0, errDown},
		"no answer about the default ones":     {down(all), unasked(t), environment("env", false), false, 0, errDown},
		"no answer about the named past cache": {none, down(all), naming, false, 0, errDown},
	} {
		got, err := Reader{Reader: tc.cache, Live: tc.live}.Policies(ctx, tc.env)
		if (got.Named != nil) != tc.named || len(got.Defaults) != tc.defaults || !errors.Is(err, tc.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err != nil && !cmp.Equal(got, decide.Policies{}) {
			t.Errorf("%s: half an answer: %+v", name, got)
		}
	}
}

func job(name string, ended bool) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid"), Annotations: map[string]string{"a": "b"}}}
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "call"}}
	if ended {
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	}
	return j
}

func TestAJobThatHasEndedIsReadPastTheCache(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	stripped := job("job", true)
	jobspec.SlimCached(stripped)
	runs, ended, none := stored(t, true, job("job", false)), stored(t, true, job("job", true)), stored(t, true)
	for name, tc := range map[string]struct {
		cache, live client.Reader
		found       bool
		err         error
	}{
		"a Job that runs":                              {runs, unasked(t), true, nil},
		"no Job":                                       {none, unasked(t), false, nil},
		"a Job that has ended":                         {stored(t, true, stripped), ended, true, nil},
		"a Job that has ended and was deleted":         {ended, none, false, nil},
		"no answer of the cache":                       {down(runs), unasked(t), false, errDown},
		"a Job that has ended, and no answer about it": {ended, down(ended), false, errDown},
	} {
		got, err := Reader{Reader: tc.cache, Live: tc.live}.Job(ctx, named("job"))
		if (got != nil) != tc.found || !errors.Is(err, tc.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if got != nil && got.Annotations["a"] != "b" {
			t.Errorf("%s: what the cache leaves out is missing: %v", name, got.Annotations)
		}
	}
	// What is read past the cache looks as what is in it.
	live, err := Reader{Reader: none, Live: runs}.LiveJob(ctx, named("job"))
	if err != nil || len(live.Spec.Template.Spec.Containers) != 0 || len(live.Annotations) != 2 {
		t.Errorf("got %+v, %v", live, err)
	}
}

func pod(name, owner string, created int64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(time.Unix(created, 0)),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: types.UID(owner), Controller: ptr.To(true)}},
	}}
}

func TestTheNewestPodOfAJobCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := Reader{Reader: stored(t, true, pod("old", "job-uid", 100), pod("new", "job-uid", 200), pod("other", "other-uid", 300)), Live: unasked(t)}
	if got, err := r.PodOf(ctx, job("job", false)); err != nil || got.Name != "new" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := r.PodOf(ctx, job("none", false)); err != nil || got != nil {
		t.Errorf("of a Job without a pod: %+v, %v", got, err)
	}
	r.Reader = down(stored(t, true))
	if got, err := r.PodOf(ctx, job("job", false)); !errors.Is(err, errDown) || got != nil {
		t.Errorf("without an answer: %+v, %v", got, err)
	}
}

func TestAPodIsGoneWhenTheAPIServerSaysSo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	have, none, namesake := stored(t, true, pod("p", "job-uid", 1)), stored(t, true), pod("p", "job-uid", 2)
	namesake.UID = "another"
	for name, tc := range map[string]struct {
		cache, live client.Reader
		found       bool
		err         error
	}{
		"in the cache": {have, unasked(t), true, nil},
		"not in the cache, which has none that ended well": {none, have, true, nil},
		"nowhere":                               {none, none, false, nil},
		"another one of that name in the cache": {stored(t, true, namesake), have, true, nil},
		"another one of that name":              {stored(t, true, namesake), stored(t, true, namesake), false, nil},
		"no answer of the cache":                {down(have), unasked(t), false, errDown},
		"no answer past it":                     {none, down(have), false, errDown},
	} {
		got, err := Reader{Reader: tc.cache, Live: tc.live}.PodByUID(ctx, named("p"), "p-uid")
		if (got != nil) != tc.found || !errors.Is(err, tc.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestTheCallsThatRecordAJob(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	call := func(name, job string, phase v1alpha1.Phase) *v1alpha1.ToolCall {
		c := callOf(v1alpha1.ToolCallSpec{})
		c.Name, c.ResourceVersion, c.Status.Job, c.Status.Phase = name, "", job, phase
		return c
	}
	runs, waits := call("runs", "job", v1alpha1.PhaseRunning), call("waits", "job", v1alpha1.PhasePending)
	runs.Status.Environment, runs.Spec.EnvironmentRef = &v1alpha1.ResolvedEnvironment{Name: "tools"}, &v1alpha1.LocalReference{Name: "named"}
	waits.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "named"}
	r := Reader{Reader: stored(t, true,
		runs, waits, call("ended", "job", v1alpha1.PhaseFailed),
		call("other", "another", v1alpha1.PhaseRunning), call("none", "", ""),
	), Live: unasked(t)}
	got, err := r.CallsOfJob(ctx, named("job"))
	if err != nil || len(got) != 2 || got[0].Name != "runs" || got[1].Name != "waits" {
		t.Errorf("got %d calls, %v", len(got), err)
	}
	if diff := cmp.Diff(map[types.NamespacedName]int{{Namespace: "ns", Name: "tools"}: 1, {Namespace: "ns", Name: "named"}: 1, {Namespace: "ns"}: 2}, CountCalls(r, All)); diff != "" {
		t.Errorf("calls in flight:\n%s", diff)
	}
	r.Reader = down(stored(t, true))
	if got, err := r.CallsOfJob(ctx, named("job")); !errors.Is(err, errDown) || got != nil {
		t.Errorf("without an answer: %v, %v", got, err)
	}
	if got := CountCalls(r, All); len(got) != 0 {
		t.Errorf("without an answer %v are in flight", got)
	}
}

func TestALargeCallIsReadWhole(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	large := callOf(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: strings.Repeat("x", maxCachedInput+1)}})
	large.ResourceVersion, large.Annotations = "", map[string]string{annotationInputBytes: "0"}
	cached := large.DeepCopy()
	slimCall(cached)
	small := callOf(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "make"}})
	replaced, edited := large.DeepCopy(), large.DeepCopy()
	replaced.UID, edited.Generation = "another", 2
	live := stored(t, false, large)
	for name, tc := range map[string]struct {
		call *v1alpha1.ToolCall
		live client.Reader
		want int
		err  error
	}{
		"a small one":           {small, unasked(t), len("make"), nil},
		"a large one":           {cached, live, maxCachedInput + 1, nil},
		"one that was replaced": {cached, stored(t, false, replaced), 0, errChanged},
		"one that was changed":  {cached, stored(t, false, edited), 0, errChanged},
		"without an answer":     {cached, down(live), 0, errDown},
	} {
		got, err := Reader{Reader: unasked(t), Live: tc.live}.Whole(ctx, tc.call)
		if !errors.Is(err, tc.err) || err == nil && (InputBytes(got) != tc.want || !isWhole(got)) || err != nil && got != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Reader{Reader: unasked(t), Live: stored(t, false)}.Whole(ctx, cached)
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("one that is gone: %v", err)
	}
}

func TestACallThatIsReadPastTheCacheHasNoMarkOfAClient(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	call := callOf(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "make"}})
	call.ResourceVersion, call.Annotations = "", map[string]string{annotationInputBytes: "-1000000000"}
	r := Reader{Reader: unasked(t), Live: stored(t, false, call)}
	if got, err := r.LiveCall(ctx, named("call")); err != nil || InputBytes(got) != len("make") || !isWhole(got) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := r.LiveCall(ctx, named("none")); err != nil || got != nil {
		t.Errorf("one that isn't there: %+v, %v", got, err)
	}
	r.Live = down(stored(t, false))
	if got, err := r.LiveCall(ctx, named("call")); !errors.Is(err, errDown) || got != nil {
		t.Errorf("without an answer: %+v, %v", got, err)
	}
}
