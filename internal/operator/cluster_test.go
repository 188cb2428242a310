package operator

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/internal/kubeversion"
	"toolcall.dev/operator/internal/testing/apiservertest"
)

// cluster is an API server of one test.
type cluster struct {
	*kubernetes.Clientset
	t       *testing.T
	version string
}

func startCluster(t *testing.T, arguments map[string]string) *cluster {
	t.Helper()
	server := apiservertest.New(t, apiservertest.Options{Configure: func(env *envtest.Environment, _ string) error {
		for name, value := range arguments {
			env.ControlPlane.GetAPIServer().Configure().Set(name, value)
		}
		return nil
	}})
	c := &cluster{Clientset: kubernetes.NewForConfigOrDie(server.Config), t: t}
	info, err := c.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	c.version = info.GitVersion
	return c
}

func (c *cluster) find(o *Options) *clusterFeatures {
	c.t.Helper()
	o.Namespace = "default"
	f, err := findFeatures(c.t.Context(), c, o)
	if err != nil {
		c.t.Fatal(err)
	}
	if f.version != c.version {
		c.t.Errorf("version %s, want %s", f.version, c.version)
	}
	return f
}

// expect compares why something isn't there; "" says that it is.
func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (c *cluster) node(name, kubelet, runtime string) {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{OperatingSystem: "linux", KubeletVersion: kubelet, ContainerRuntimeVersion: runtime}
	if _, err := c.CoreV1().Nodes().Create(c.t.Context(), node, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func TestTheOperatorFindsOutWhatTheClusterHas(t *testing.T) {
	t.Parallel()
	c := startCluster(t, nil)
	auto := &Options{RunnerDelivery: DeliverAuto}
	lacks := ""
	if kubeversion.IsOlder(c.version, kubeversion.ImageVolumes) {
		lacks = "the API server takes no image volumes"
	}
	expect(t, "image volumes", c.find(auto).noImageVolumes, lacks)
	c.node("new", "v1.36.3", "containerd://2.2.9")
	expect(t, "image volumes on a new node", c.find(auto).noImageVolumes, lacks)
	c.node("old", "v1.35.1", "containerd://1.7.27")
	if lacks == "" {
		lacks = "node old: containerd 1.7.27 is older than 2.1"
	}
	expect(t, "image volumes on an old node", c.find(auto).noImageVolumes, lacks)
	expect(t, "image volumes anyway", c.find(&Options{RunnerDelivery: DeliverMounted}).noImageVolumes, "")
	expect(t, "copies anyway", c.find(&Options{RunnerDelivery: DeliverCopied}).noImageVolumes, "--runner-delivery")
	// Where there is no such namespace, nobody can ask.
	missing := &Options{RunnerDelivery: DeliverAuto, Namespaces: []string{"missing"}}
	expect(t, "a namespace that isn't there", c.find(missing).noImageVolumes, "can't be asked")
}

// A cluster of the oldest version may have image volumes.
func TestTheOperatorAsksTheClusterAndNotItsVersion(t *testing.T) {
	t.Parallel()
	old := startCluster(t, map[string]string{"feature-gates": "ImageVolume=true"})
	expect(t, "image volumes that are turned on", old.find(&Options{RunnerDelivery: DeliverAuto}).noImageVolumes, "")
}

// Nothing vouches for requesters there: the operator doesn't start. No API server of a supported version starts like that.
func TestTheOperatorRefusesAClusterThatCannotBeMadeSafe(t *testing.T) {
	t.Parallel()
	host := versionServer(t, "v1.36.0", "validatingwebhookconfigurations", "mutatingadmissionpolicies")
	_, err := findFeatures(t.Context(), kubernetes.NewForConfigOrDie(&rest.Config{Host: host}), &Options{RunnerDelivery: DeliverAuto})
	if err == nil || !strings.Contains(err.Error(), "serves no validatingadmissionpolicies") {
		t.Errorf("without policies: %v", err)
	}
}

func TestTheOperatorRefusesAnOldCluster(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.32.9":            "this cluster runs Kubernetes v1.32.9: 1.33 or newer is needed",
		"v1.29.0-gke.1":      "1.33 or newer",
		"v1.33.0":            "ask the cluster what it serves",
		"v1.34.2-eks-abc123": "ask the cluster what it serves",
	} {
		clients, err := kubernetes.NewForConfig(&rest.Config{Host: versionServer(t, version)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = findFeatures(t.Context(), clients, &Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Kubernetes %s: %v", version, err)
		}
	}
}

// versionServer is an API server that says its version, and which resources it serves for admission, if any.
func versionServer(t *testing.T, version string, serves ...string) string {
	t.Helper()
	listener := httptest.NewServer(versionHandler(version, serves...))
	t.Cleanup(listener.Close)
	return listener.URL
}

func versionHandler(version string, serves ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "admissionregistration.k8s.io/v1"}
		for _, name := range serves {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/version":
			_ = json.NewEncoder(w).Encode(map[string]string{"gitVersion": version})
		case r.URL.Path == "/apis/admissionregistration.k8s.io/v1" && len(serves) > 0:
			_ = json.NewEncoder(w).Encode(list)
		default:
			http.NotFound(w, r)
		}
	}
}
