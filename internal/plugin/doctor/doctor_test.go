package doctor

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// doctor knows every admission policy that an installation has, and each has its binding.
func TestDoctorKnowsTheAdmissionPolicies(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../config/admission/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string][]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(raw), "\n---\n") {
			var object struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			byKind[object.Kind] = append(byKind[object.Kind], object.Metadata.Name)
		}
	}
	for kind, known := range map[string][]string{
		"MutatingAdmissionPolicy": mutating, "MutatingAdmissionPolicyBinding": mutating,
		"ValidatingAdmissionPolicy": validating, "ValidatingAdmissionPolicyBinding": validating,
	} {
		slices.Sort(byKind[kind])
		if diff := cmp.Diff(byKind[kind], known); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

func TestDoctorKnowsTheKinds(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../config/crd/toolcall.dev_*.yaml")
	if err != nil || len(files) != len(kinds) {
		t.Fatalf("%d kinds, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "toolcall.dev_"), ".yaml")
		if !slices.Contains(kinds, name) {
			t.Errorf("%s is unknown", name)
		}
	}
}

// installation has the API server answer as if the operator were installed.
func installation(f *plugintest.Fixture, operator, store int32) string {
	answer := func(w http.ResponseWriter, object any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object)
	}
	return f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/deployments"):
			d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "toolcall-operator"}}
			d.Spec.Replicas, d.Status.AvailableReplicas = ptr.To(int32(2)), operator
			d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "toolcall.dev/manager:v1.2.3"}}
			answer(w, &appsv1.DeploymentList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DeploymentList"}, Items: []appsv1.Deployment{d}})
		case strings.HasSuffix(r.URL.Path, "/statefulsets"):
			list := &appsv1.StatefulSetList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSetList"}}
			if store >= 0 {
				list.Items = []appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{Name: "toolcall-store"}, Status: appsv1.StatefulSetStatus{ReadyReplicas: store}}}
			}
			answer(w, list)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// In the API server of the tests, not all admission policies are installed: doctor names those, and exits with 1.
func TestDoctorNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	got := f.Run("doctor")
	got.Expect(t, 1, "OK kinds 7 kinds of toolcall.dev/v1alpha1", "OK output API subresources.toolcall.dev/v1alpha1 answers",
		"PROBLEM admission missing: ValidatingAdmissionPolicy toolcall-create", "to do: as a cluster administrator, install the operator",
		"PROBLEM operator no operator was found", "WARNING output store no output store",
		"WARNING environments there are no environments in namespace "+f.Namespace)
	for _, installed := range []string{"Policy toolcall-requested-by", "Policy toolcall-identity", "Binding toolcall-session-spec"} {
		if strings.Contains(got.Out, installed) {
			t.Errorf("%s is installed: %s", installed, got.Out)
		}
	}
}

// On a cluster without the operator, everything is a problem whose solution is to install it.
func TestDoctorOnAClusterWithoutTheOperator(t *testing.T) {
	t.Parallel()
	plugintest.New(t).Bare["doctor"].Expect(t, 1, "OK cluster Kubernetes", "PROBLEM kinds the cluster has no kind of toolcall.dev/v1alpha1", "PROBLEM admission missing: MutatingAdmissionPolicy toolcall-approver",
		"PROBLEM output API there is no APIService", "PROBLEM operator no operator was found", "PROBLEM environments the cluster has no executionenvironments",
		"PROBLEM policies the cluster has no executionpolicies", "to do: as a cluster administrator, install the operator")
}

func TestDoctorOnTheOperatorAndTheStore(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for _, c := range map[string]struct {
		operator, store int32
		want            []string
	}{
		"healthy":     {2, 1, []string{"OK operator Deployment toolcall-system/toolcall-operator: 2 of 2 replicas", "OK output store StatefulSet toolcall-system/toolcall-store is ready"}},
		"half":        {1, 0, []string{"WARNING operator", "1 of 2 replicas", "PROBLEM output store", "kubectl describe pods,pvc -n toolcall-system"}},
		"none at all": {0, -1, []string{"PROBLEM operator", "no call starts or ends", "WARNING output store no output store"}},
	} {
		out, errs, code := plugintest.CommandAt(installation(f, c.operator, c.store), "-n", f.Namespace, "doctor")
		plugintest.Printed{Out: out, Err: errs, Code: code}.Expect(t, 1, c.want...)
	}
}

// Environments, policies and nodes that aren't well are problems with advice; -o json says the same to programs.
func TestDoctorOnEnvironmentsAndNodes(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	for _, name := range []string{"good", "bad", "late", "new"} {
		f.Environment(name, false)
	}
	f.SetReady("good", metav1.ConditionTrue, "Ready", nil)
	f.SetReady("bad", metav1.ConditionFalse, v1alpha1.ReasonIsolationUnavailable, nil)
	f.SetReady("late", metav1.ConditionTrue, "Ready", nil)
	f.Run("env", "suspend", "late").Expect(t, 0)
	got := f.Run("doctor")
	got.Expect(t, 1, "OK environments "+f.Namespace+"/good is ready", "PROBLEM environments "+f.Namespace+"/bad is not ready: IsolationUnavailable",
		"Landlock (Linux 5.13 or newer", "WARNING environments "+f.Namespace+"/late is suspended", "kubectl toolcall env resume late", f.Namespace+"/new has no status")
	var report struct {
		Kind string
		doctorReport
	}
	raw := f.Run("doctor", "-o", "json")
	if err := json.Unmarshal([]byte(raw.Out), &report); err != nil || raw.Code != 1 || report.Kind != "Diagnosis" || report.Healthy || len(report.Findings) < 10 {
		t.Errorf("exit code %d, %v: %+v", raw.Code, err, report)
	}
}

// An environment in which calls run, but not all of its walls hold, isn't well.
func TestDoctorOnAnEnvironmentThatDoesNotHoldAll(t *testing.T) {
	t.Parallel()
	const message = v1alpha1.MessageReadyBut + "nothing but their runner keeps them from the network: quota exceeded"
	env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "tools"}}
	env.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: message}}
	got := environmentFinding(env)
	if got.State != stateWarning || got.Detail != "agents/tools: "+message || !strings.Contains(got.Advice, "kubectl toolcall env describe tools -n agents") {
		t.Errorf("got %+v", got)
	}
}

// A caller with few rights learns what can be seen, and what couldn't be.
func TestDoctorWithFewRights(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Environment("tools", true)
	f.SetReady("tools", metav1.ConditionTrue, "Ready", nil)
	user := f.User([]string{"toolcall-user"}, "ls")
	f.Run("doctor", "--as", user).Expect(t, 0, "OK cluster Kubernetes v1.", "OK kinds", "OK admission who creates a call is recorded; the other admission policies can't be seen",
		"OK output API", "UNKNOWN operator you have no permission to list deployments in namespace toolcall-system", "UNKNOWN output store", "OK environments "+f.Namespace+"/tools is ready",
		"UNKNOWN policies you have no permission to list executionpolicies", "toolcall-policy-viewer", "UNKNOWN nodes", "4 UNKNOWN")
	f.Run("doctor", "--as", "nobody").Expect(t, 0, "UNKNOWN admission", "UNKNOWN environments")
	_, errs, code := plugintest.CommandAt(plugintest.Offline(t), "doctor")
	if code != 1 || !strings.Contains(errs, "the cluster can't be reached") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// What a node can do is told from its versions.
func TestDoctorOnNodes(t *testing.T) {
	t.Parallel()
	node := func(kernel, runtime, kubelet string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		n.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: kernel, ContainerRuntimeVersion: runtime, KubeletVersion: kubelet, OperatingSystem: "linux"}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return n
	}
	down := node("6.18.1", "containerd://2.2.9", "v1.36.3")
	down.Status.Conditions = nil
	windows := node("10.0", "containerd://2.2.9", "v1.36.3")
	windows.Status.NodeInfo.OperatingSystem = "windows"
	for name, c := range map[string]struct {
		node        *corev1.Node
		state, part string
	}{
		"all of it":            {node("6.18.44-fc", "containerd://2.2.9", "v1.36.3"), stateOK, "n: Linux 6.18.44-fc, containerd://2.2.9, kubelet v1.36.3"},
		"no signals":           {node("6.8.0-31-generic", "cri-o://1.36.0", "v1.36.0"), stateOK, "no signals"},
		"too old":              {node("5.4.0", "containerd://2.2.9", "v1.36.3"), stateWarning, "Linux 5.10 or newer"},
		"no Landlock":          {node("5.10.0", "containerd://2.2.9", "v1.36.3"), stateWarning, "Landlock among lsm="},
		"an early Landlock":    {node("5.15.0", "containerd://2.2.9", "v1.36.3"), stateOK, "no signals"},
		"an old runtime":       {node("6.18.1", "containerd://1.7.27", "v1.36.3"), stateWarning, "containerd 1.7.27 is older than 2.1"},
		"an old kubelet":       {node("6.18.1", "containerd://2.2.9", "v1.34.1"), stateWarning, "kubectl rollout restart deployment -n tools -l app.kubernetes.io/name=toolcall-operator"},
		"a kubelet too old":    {node("6.18.1", "containerd://2.2.9", "v1.32.9"), stateProblem, "upgrade the node to Kubernetes 1.33"},
		"a strange version":    {node("strange", "containerd://other", "strange"), stateOK, "strange"},
		"one that is away":     {down, stateWarning, "not ready"},
		"one that isn't Linux": {windows, stateOK, "calls don't run on it"},
	} {
		got := nodeFinding(c.node, true, "tools")
		if got.State != c.state || !strings.Contains(got.Detail+" "+got.Advice, c.part) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// Where the API server has no image volumes, no pod has one.
	for _, old := range []*corev1.Node{node("6.18.1", "containerd://1.7.27", "v1.33.3"), node("6.18.1", "docker://28", "v1.34.1")} {
		if got := nodeFinding(old, false, "tools"); got.State != stateOK {
			t.Errorf("%+v", got)
		}
	}
}

func TestDoctorOnVersionsOfTheCluster(t *testing.T) {
	t.Parallel()
	for running, want := range map[string][2]string{
		"v1.32.9": {stateProblem, "docs/install.md#kubernetes-versions"}, "v1.33.0": {stateOK, "an init container"}, "v1.34.1-eks-abc": {stateOK, "an init container"},
		"v1.35.0": {stateOK, "Kubernetes v1.35.0"}, "v1.36.3": {stateOK, "Kubernetes v1.36.3"},
	} {
		if got := clusterFinding(running); got.State != want[0] || !strings.Contains(got.Detail+got.Advice, want[1]) {
			t.Errorf("%s: %+v", running, got)
		}
	}
}

// What fills in who creates a call can be missing; what checks it can't.
func TestDoctorOnWhatOfAdmissionIsMissing(t *testing.T) {
	t.Parallel()
	stamp, check := []string{"MutatingAdmissionPolicy toolcall-requested-by"}, []string{"ValidatingAdmissionPolicy toolcall-identity"}
	for name, c := range map[string]struct {
		serves          bool
		absent, missing []string
		state, part     string
	}{
		"nothing":                          {true, nil, nil, stateOK, "16 admission policies with their bindings"},
		"the stamp, where there can be no": {false, nil, nil, stateOK, "clients say who creates a call"},
		"the stamp":                        {true, stamp, nil, stateWarning, "toolcall-requested-by: clients have to say"},
		"the check":                        {true, nil, check, stateProblem, "toolcall-identity"},
		"the check, without a stamp":       {false, nil, check, stateProblem, "toolcall-identity"},
		"both":                             {true, stamp, check, stateProblem, "toolcall-requested-by, ValidatingAdmissionPolicy toolcall-identity"},
	} {
		got := admissionFindings(c.serves, c.absent, c.missing, nil)
		if len(got) != 1 || got[0].State != c.state || !strings.Contains(got[0].Detail, c.part) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What the kernel counts by user, one namespace can use up for another.
func TestDoctorWarnsOfASharedUser(t *testing.T) {
	t.Parallel()
	env := func(namespace string, hostUsers *bool, user *int64) v1alpha1.ExecutionEnvironment {
		e := v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "env"}, Spec: v1alpha1.ExecutionEnvironmentSpec{HostUsers: hostUsers}}
		if user != nil {
			e.Spec.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: user}
		}
		return e
	}
	one := countedUsers{defaults: &jobspec.UserRange{}}
	own := countedUsers{defaults: &jobspec.UserRange{First: 1_000_000_000, Last: 1_999_999_999}, ownInNamespaces: true}
	for name, tc := range map[string]struct {
		environments []v1alpha1.ExecutionEnvironment
		counted      countedUsers
		want         string
	}{
		"two namespaces":                      {[]v1alpha1.ExecutionEnvironment{env("a", nil, nil), env("b", ptr.To(true), ptr.To(int64(1000)))}, one, "of 2 namespaces run as user 1000"},
		"one namespace":                       {[]v1alpha1.ExecutionEnvironment{env("a", nil, nil), env("a", nil, nil)}, one, ""},
		"users of environments":               {[]v1alpha1.ExecutionEnvironment{env("a", nil, nil), env("b", nil, ptr.To(int64(2000)))}, one, ""},
		"users of namespaces":                 {[]v1alpha1.ExecutionEnvironment{env("a", nil, nil), env("b", nil, nil)}, own, ""},
		"an operator that isn't seen":         {[]v1alpha1.ExecutionEnvironment{env("a", nil, nil), env("b", nil, nil)}, countedUsers{}, ""},
		"user namespaces":                     {[]v1alpha1.ExecutionEnvironment{env("a", ptr.To(false), nil), env("b", ptr.To(false), nil)}, own, ""},
		"user namespaces that root makes":     {[]v1alpha1.ExecutionEnvironment{env("a", ptr.To(false), nil)}, one, "count as root of their node"},
		"root":                                {[]v1alpha1.ExecutionEnvironment{env("a", nil, ptr.To(int64(0)))}, own, "with the node's services: namespaces a"},
		"one of two in such a user namespace": {[]v1alpha1.ExecutionEnvironment{env("a", nil, nil), env("b", ptr.To(false), nil)}, one, "with the node's services: namespaces b"},
	} {
		got := sharedUsers(tc.environments, tc.counted)
		if (len(got) == 1) != (tc.want != "") || tc.want != "" && (got[0].State != stateWarning || !strings.Contains(got[0].Detail, tc.want)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
