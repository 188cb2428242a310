package api_test

import (
	"maps"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/spec"
)

const (
	operatorNamespace = "toolcall-system"
	operatorUser      = "system:serviceaccount:" + operatorNamespace + ":toolcall-operator"
	jobController     = "system:serviceaccount:kube-system:job-controller"
)

// anybody has every right that RBAC can give, so that only the admission policies are left.
var anybody = asUser{groups: []string{"system:masters"}}

func (s *space) operator() client.Client { return s.as(operatorUser, anybody) }

// sealer stands in for the operator's identity, which no admission policy sees.
type sealer struct{}

func (sealer) Seal(...string) string                     { return "sealed" }
func (sealer) CheckSeal(string, ...string) bool          { return true }
func (sealer) Encrypt([]byte, ...string) (string, error) { return "sealed", nil }
func (sealer) Decrypt(string, ...string) ([]byte, error) { return nil, nil }

// jobOf is the Job that the operator makes of a call.
func (s *space) jobOf(call *v1alpha1.ToolCall) *batchv1.Job {
	s.t.Helper()
	job, err := jobspec.Build(jobspec.Input{
		Call: call, Sealer: sealer{},
		Decision: &decide.Decision{In: newEnvironment(s.namespace, "env"), Environment: "env", Bounds: spec.Bounds{TimeoutMilliseconds: 1000}, StartTimeoutSeconds: 60},
		Runtime:  jobspec.Runtime{RunnerImage: "runner:1", Endpoints: []string{"a:1"}, CA: "ca"},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return job
}

// callAndJob are a call and its Job, as the operator has made it.
func (s *space) callAndJob(name string) (*v1alpha1.ToolCall, *batchv1.Job) {
	s.t.Helper()
	call := newCall(s.namespace, name)
	s.create(call)
	job := s.jobOf(call)
	if err := s.operator().Create(s.t.Context(), job); err != nil {
		s.t.Fatal(err)
	}
	return call, job
}

func changedObject[T client.Object](object T, change func(T)) T {
	copied := object.DeepCopyObject().(T)
	copied.SetResourceVersion("")
	copied.SetUID("")
	change(copied)
	return copied
}

func TestTheOperatorMakesNothingButItsOwnJobs(t *testing.T) {
	s := newSpace(t)
	call := newCall(s.namespace, "c")
	s.create(call)
	job := s.jobOf(call)
	pool := jobspec.BuildWarm(jobspec.WarmInput{Environment: newEnvironment(s.namespace, "env"), Name: jobspec.WarmName(newEnvironment(s.namespace, "env"), "1"),
		Runtime: jobspec.Runtime{RunnerImage: "runner"}}, "hash", sealer{})
	in := func(namespace string) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Namespace = namespace } }
	for name, tc := range map[string]struct {
		job     *batchv1.Job
		change  func(*batchv1.Job)
		refused string
	}{
		"a call's":            {job, func(*batchv1.Job) {}, ""},
		"a pool's":            {pool, func(*batchv1.Job) {}, ""},
		"without a label":     {job, func(j *batchv1.Job) { delete(j.Labels, v1alpha1.LabelManagedBy) }, "may only touch objects with the label"},
		"with another name":   {job, func(j *batchv1.Job) { j.Name = "backup" }, "whose name starts with tc-"},
		"with strange pods":   {job, func(j *batchv1.Job) { delete(j.Spec.Template.Labels, v1alpha1.LabelManagedBy) }, "whose pods have the label"},
		"in kube-system":      {job, in("kube-system"), "system namespace kube-system"},
		"in kube-public":      {job, in("kube-public"), "system namespace kube-public"},
		"in kube-node-lease":  {job, in("kube-node-lease"), "system namespace kube-node-lease"},
		"beside the operator": {job, in(operatorNamespace), "system namespace " + operatorNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			expectRefused(t, s.operator().Create(t.Context(), changedObject(tc.job, tc.change), client.DryRunAll), tc.refused)
		})
	}
}

func TestTheOperatorLeavesTheJobsOfOthersAlone(t *testing.T) {
	s := newSpace(t)
	_, job := s.callAndJob("c")
	foreign := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "tc-foreign"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: job.Spec.Template.Spec}},
	}
	s.create(foreign)
	operator := s.operator()
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"toolcall-operator","toolcall.dev/call-uid":"x"}}}`))
	expectRefused(t, operator.Patch(t.Context(), foreign.DeepCopy(), label), "may only touch objects with the label")
	expectRefused(t, operator.Delete(t.Context(), foreign.DeepCopy()), "may only touch objects with the label")
	unlabel := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`))
	expectRefused(t, operator.Patch(t.Context(), job.DeepCopy(), unlabel), "may only touch objects with the label")
	expectRefused(t, operator.Patch(t.Context(), job.DeepCopy(), label), "")
	expectRefused(t, operator.Delete(t.Context(), job.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground)), "")
}

func TestTheOperatorMakesNothingButItsOwnSecrets(t *testing.T) {
	s := newSpace(t)
	_, job := s.callAndJob("c")
	token := jobspec.Credential(job, "token")
	identity := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "toolcall-identity", Labels: token.Labels},
		Type:       corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k")},
	}
	const shape = "immutable Secrets that hold the token of a Job's pod"
	for name, tc := range map[string]struct {
		secret  *corev1.Secret
		change  func(*corev1.Secret)
		refused string
	}{
		"a token":           {token, func(*corev1.Secret) {}, ""},
		"without a label":   {token, func(o *corev1.Secret) { o.Labels = nil }, "may only touch objects with the label"},
		"with another name": {token, func(o *corev1.Secret) { o.Name = "tc-other" }, shape},
		"that lasts":        {token, func(o *corev1.Secret) { o.OwnerReferences = nil }, shape},
		"of another owner":  {token, func(o *corev1.Secret) { o.OwnerReferences[0].Kind, o.OwnerReferences[0].APIVersion = "Pod", "v1" }, shape},
		"of two owners": {token, func(o *corev1.Secret) {
			o.OwnerReferences = append(o.OwnerReferences, o.OwnerReferences[0])
			o.OwnerReferences[1].UID = "other"
		}, shape},
		"that can be changed": {token, func(o *corev1.Secret) { o.Immutable = nil }, shape},
		"with more in it":     {token, func(o *corev1.Secret) { o.StringData["more"] = "x" }, shape},
		"for a service account": {token, func(o *corev1.Secret) {
			o.Type, o.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: "default"}
		}, shape},
		"in kube-system":              {token, func(o *corev1.Secret) { o.Namespace = "kube-system" }, "system namespace kube-system"},
		"a token beside the operator": {token, func(o *corev1.Secret) { o.Namespace = operatorNamespace }, "system namespace " + operatorNamespace},
		"its identity":                {identity, func(*corev1.Secret) {}, ""},
		"an identity elsewhere":       {identity, func(o *corev1.Secret) { o.Namespace = s.namespace }, shape},
		"an identity in kube-system":  {identity, func(o *corev1.Secret) { o.Namespace = "kube-system" }, "system namespace kube-system"},
		"another beside its identity": {identity, func(o *corev1.Secret) { o.Name = "tc-x" }, "system namespace " + operatorNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			expectRefused(t, s.operator().Create(t.Context(), changedObject(tc.secret, tc.change), client.DryRunAll), tc.refused)
		})
	}
	if err := s.operator().Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	expectRefused(t, s.operator().Delete(t.Context(), token.DeepCopy()), shape)
}

func TestTheOperatorWritesNetworkPoliciesForItsPodsAlone(t *testing.T) {
	s := newSpace(t)
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "toolcall-no-ingress", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}},
	}
	for name, tc := range map[string]struct {
		change  func(*networkingv1.NetworkPolicy)
		refused string
	}{
		"its own":         {func(*networkingv1.NetworkPolicy) {}, ""},
		"without a label": {func(p *networkingv1.NetworkPolicy) { p.Labels = nil }, "may only touch objects with the label"},
		"of all pods":     {func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector = metav1.LabelSelector{} }, "that select its own pods"},
	} {
		t.Run(name, func(t *testing.T) {
			expectRefused(t, s.operator().Create(t.Context(), changedObject(policy, tc.change), client.DryRunAll), tc.refused)
		})
	}
}

// podOf is the pod that the Job controller makes of a Job.
func podOf(job *batchv1.Job) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, GenerateName: job.Name + "-", Labels: maps.Clone(job.Spec.Template.Labels), Annotations: job.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: ptr.To(true)}},
		},
		Spec: *job.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.ServiceAccountName = ""
	return pod
}

// An image can be changed of a pod that is there, and one of them brings the runner.
func TestImagesOfTheOperatorsPodsStay(t *testing.T) {
	s := newSpace(t)
	_, job := s.callAndJob("c")
	pod := podOf(job)
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init:1"}}
	if err := s.as(jobController, anybody).Create(s.t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"the container's":      func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other:1" },
		"the init container's": func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "other:1" },
	} {
		changed := pod.DeepCopy()
		change(changed)
		if err := refusedBy("toolcall-operator-objects", s.as("somebody", anybody).Update(s.t.Context(), changed)); err != nil {
			t.Errorf("%s image: %v", name, err)
		}
	}
	changed := pod.DeepCopy()
	changed.Finalizers = []string{"example.com/kept"}
	if err := s.as("somebody", anybody).Update(s.t.Context(), changed); err != nil {
		t.Errorf("something else: %v", err)
	}
	changed.Finalizers = nil
	if err := s.as("somebody", anybody).Update(s.t.Context(), changed); err != nil {
		t.Error(err)
	}
}

func TestNobodyForgesWhatTheOperatorMakes(t *testing.T) {
	s := newSpace(t)
	_, job := s.callAndJob("c")
	copied := changedObject(job, func(j *batchv1.Job) {
		j.Name = "tc-copied"
		j.Spec.Selector = nil
		delete(j.Spec.Template.Labels, batchv1.ControllerUidLabel)
	})
	for _, label := range []string{batchv1.JobNameLabel, "controller-uid", "job-name"} {
		delete(copied.Spec.Template.Labels, label)
	}
	hidden := changedObject(copied, func(j *batchv1.Job) { j.Labels = map[string]string{"app": "x"} })
	harmless := changedObject(hidden, func(j *batchv1.Job) { delete(j.Spec.Template.Labels, v1alpha1.LabelManagedBy) })
	for who, tc := range map[string]struct {
		object  client.Object
		refused string
	}{
		// Two policies refuse it, and either may come first.
		"kubernetes-admin": {copied, "only the operator makes"},
		"system:serviceaccount:kube-system:cronjob-controller": {copied, "only the operator makes"},
		"system:serviceaccount:" + s.namespace + ":a":          {hidden, "only the operator makes Jobs whose pods have the label"},
		"somebody": {harmless, ""},
		"system:serviceaccount:kube-system:replicaset-controller": {podOf(job), "only the operator makes pods with the label"},
		"system:serviceaccount:" + s.namespace + ":b":             {podOf(job), "only the operator makes pods with the label"},
		"system:kube-controller-manager":                          {podOf(job), ""},
		jobController:                                             {podOf(job), ""},
		"velero":                                                  {jobspec.Credential(job, "t"), "only the operator makes secrets with the label"},
		"a-tenant":                                                {changedObject(podOf(job), func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"}; p.Annotations = nil }), ""},
	} {
		t.Run(who, func(t *testing.T) {
			expectRefused(t, s.as(who, anybody).Create(t.Context(), tc.object, client.DryRunAll), tc.refused)
		})
	}
}

func TestTheOperatorsMarksStayAsTheyAre(t *testing.T) {
	s := newSpace(t)
	_, job := s.callAndJob("c")
	foreign := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "foreign"},
		Spec:       batchv1.JobSpec{Suspend: ptr.To(true), Template: corev1.PodTemplateSpec{Spec: job.Spec.Template.Spec}},
	}
	s.create(foreign)
	queue := s.as("system:serviceaccount:kueue-system:kueue-controller-manager", anybody)
	const onJob, onPods = "are the operator's on what", "are the operator's on the"
	for patch, tc := range map[string]struct {
		job     *batchv1.Job
		refused string
	}{
		`{"spec":{"suspend":true}}`: {job, ""},
		`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"q","team":"x"},"annotations":{"a":"b"}}}`:       {job, ""},
		`{"metadata":{"labels":{"toolcall.dev/call-uid":"other"}}}`:                                          {job, onJob},
		`{"metadata":{"labels":{"toolcall.dev/call-uid":null}}}`:                                             {job, onJob},
		`{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`:                                      {job, onJob},
		`{"metadata":{"annotations":{"toolcall.dev/plan":"{}"}}}`:                                            {job, onJob},
		`{"metadata":{"annotations":{"toolcall.dev/pool":"env"}}}`:                                           {job, onJob},
		`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"toolcall-operator"}}}`:                       {foreign, onJob},
		`{"spec":{"template":{"metadata":{"labels":{"app.kubernetes.io/managed-by":"toolcall-operator"}}}}}`: {foreign, onPods},
		`{"spec":{"template":{"metadata":{"labels":{"team":"x"}},"spec":{"nodeSelector":{"a":"b"}}}}}`:       {foreign, ""},
	} {
		t.Run(patch, func(t *testing.T) {
			raw := client.RawPatch("application/merge-patch+json", []byte(patch))
			expectRefused(t, queue.Patch(t.Context(), tc.job.DeepCopy(), raw, client.DryRunAll), tc.refused)
		})
	}
}

// While a Job is suspended a queue may change its pods' node selector and labels, and no others' marks.
func TestAQueueChangesASuspendedJob(t *testing.T) {
	s := newSpace(t)
	call := newCall(s.namespace, "c")
	s.create(call)
	job := s.jobOf(call)
	job.Spec.Suspend = ptr.To(true)
	if err := s.operator().Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	queue := s.as("system:serviceaccount:kueue-system:kueue-controller-manager", anybody)
	for patch, refused := range map[string]string{
		`{"spec":{"suspend":false,"template":{"metadata":{"labels":{"kueue.x-k8s.io/podset":"main"},"annotations":{"kueue.x-k8s.io/workload":"w"}},"spec":{"nodeSelector":{"a":"b"}}}}}`: "",
		`{"spec":{"template":{"metadata":{"annotations":{"toolcall.dev/call":"other"}}}}}`:                                                                                               "are the operator's on the",
		`{"spec":{"template":{"metadata":{"labels":{"toolcall.dev/network":"allowed"}}}}}`:                                                                                               "",
		`{"spec":{"template":{"metadata":{"labels":{"toolcall.dev/network":"denied"}}}}}`:                                                                                                "are the operator's on the",
		`{"spec":{"template":{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}}}`:                                                                                            "are the operator's on the",
		`{"spec":{"template":{"metadata":{"labels":{"toolcall.dev/call-uid":null}}}}}`:                                                                                                   "are the operator's on the",
	} {
		t.Run(patch, func(t *testing.T) {
			raw := client.RawPatch("application/merge-patch+json", []byte(patch))
			expectRefused(t, queue.Patch(t.Context(), job.DeepCopy(), raw, client.DryRunAll), refused)
		})
	}
}
