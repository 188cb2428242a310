package subresources_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/subresources"
)

// The authority comes back when somebody replaces the APIService, and nothing is written into one that leads elsewhere.
func TestTheOperatorRegistersItself(t *testing.T) {
	s := newSpace(t)
	writer, err := client.New(s.operator, client.Options{Scheme: s.scheme})
	if err != nil {
		t.Fatal(err)
	}
	bundle := func() string {
		return s.run("get", "apiservice", subresources.APIServiceName, "--output=jsonpath={.spec.caBundle}")
	}
	before := bundle()
	if before == "" {
		t.Fatal("there is no authority")
	}
	start := func(service string) func() {
		r := &subresources.Registration{Client: writer, Identity: s.identity, Namespace: system, Service: service, Log: logr.Discard()}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = r.Start(ctx)
		}()
		return func() {
			cancel()
			<-ended
		}
	}
	s.run("patch", "apiservice", subresources.APIServiceName, "--type=merge", `--patch={"spec":{"caBundle":null}}`)
	s.run("wait", "--for=condition=Available=False", "apiservice/"+subresources.APIServiceName, "--timeout=60s")
	elsewhere := start("other")
	elsewhere()
	if got := bundle(); got != "" {
		t.Errorf("an operator with another Service wrote %q", got)
	}
	stop := start(service)
	defer stop()
	eventually(t, func() error {
		if bundle() != before {
			return errors.New("the authority isn't back")
		}
		return nil
	})
	s.run("wait", "--for=condition=Available", "apiservice/"+subresources.APIServiceName, "--timeout=60s")
}

func TestTheKindsKeepTheirNames(t *testing.T) {
	s := newSpace(t)
	s.finished("one", "x")
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "two"}}
	if err := s.admin.Create(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]string{
		"toolcalls": "toolcall.toolcall.dev/one", "toolcall": "toolcall.toolcall.dev/one", "tc": "toolcall.toolcall.dev/one", "ToolCall": "toolcall.toolcall.dev/one",
		"toolsessions": "toolsession.toolcall.dev/two", "toolsession": "toolsession.toolcall.dev/two", "tsn": "toolsession.toolcall.dev/two",
	} {
		if got := s.run("get", resource, "--output=name"); got != want {
			t.Errorf("kubectl get %s: %s", resource, got)
		}
	}
	if got := s.run("explain", "toolcalls"); !strings.Contains(got, "GROUP:      toolcall.dev") {
		t.Errorf("kubectl explain toolcalls: %s", got)
	}
	list := &metav1.APIResourceList{}
	if err := json.Unmarshal([]byte(s.run("get", "--raw", "/apis/"+subresources.GroupVersion.String())), list); err != nil {
		t.Fatal(err)
	}
	verbs := map[string]string{}
	for _, r := range list.APIResources {
		verbs[r.Name] = strings.Join(r.Verbs, " ")
	}
	want := map[string]string{"toolcallreviews": "create", "toolcalls": "", "toolcalls/log": "get", "toolsessions": "", "toolsessions/proxy": "create delete get update"}
	if fmt.Sprint(verbs) != fmt.Sprint(want) {
		t.Errorf("the group has %v, want %v", verbs, want)
	}
	said := s.run("delete", "toolcalls", "--all")
	if !strings.Contains(said, `"one" deleted`) {
		t.Errorf("kubectl delete toolcalls --all: %s", said)
	}
}

// A server that is away keeps namespaces from being deleted, and nothing else: they go when it is back. Kubernetes does so
// with every aggregated API, which is why each replica answers as soon as it runs, and why an uninstallation begins with the
// APIService.
func TestNamespacesWaitForAServerThatIsAway(t *testing.T) {
	s := newSpace(t)
	s.withNamespaceController()
	if err := s.stopServing(); err != nil {
		t.Fatal(err)
	}
	running := false
	defer func() {
		if !running {
			_ = s.serveShared(s.address)
		}
	}()
	s.run("wait", "--for=condition=Available=False", "apiservice/"+subresources.APIServiceName, "--timeout=60s")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "object"}}
	if err := s.admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := s.admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	name := types.NamespacedName{Name: s.namespace}
	eventually(t, func() error {
		if err := s.admin.Get(t.Context(), name, namespace); err != nil {
			t.Fatalf("the namespace is gone: %v", err)
		}
		for _, c := range namespace.Status.Conditions {
			if c.Type == corev1.NamespaceDeletionDiscoveryFailure && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, subresources.GroupVersion.Group) {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", namespace.Status.Conditions)
	})
	if err := s.serveShared(s.address); err != nil {
		t.Fatal(err)
	}
	running = true
	eventually(t, func() error {
		err := s.admin.Get(t.Context(), name, namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the namespace is still there: %v, %v", err, namespace.Status.Conditions)
	})
	// For the tests that follow.
	if said, err := s.Kubectl("", "wait", "--for=condition=Available", "apiservice/"+subresources.APIServiceName, "--timeout=60s"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
}

// withNamespaceController runs the controller that deletes namespaces until the test ends. It skips the test where there is no
// kube-controller-manager beside the API server: the local cluster builds one, envtest needs none.
func (s *space) withNamespaceController() {
	s.t.Helper()
	stop, there, err := s.RunControllers("--namespace-sync-period=1s", "--controllers=namespace-controller")
	if err != nil {
		s.t.Fatal(err)
	}
	if !there {
		s.t.Skip("needs kube-controller-manager beside kube-apiserver: make cluster-build")
	}
	s.t.Cleanup(stop)
}
