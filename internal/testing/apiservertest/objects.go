package apiservertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
)

// Where config/default installs the operator, and who it is.
const (
	OperatorNamespace = "toolcall-system"
	OperatorUser      = "system:serviceaccount:" + OperatorNamespace + ":toolcall-operator"
)

// unstamped on a namespace has it be as on a cluster without MutatingAdmissionPolicy: nobody but the client fills in who creates a
// call or a session.
const unstamped = "test.toolcall.dev/unstamped"

// Scheme has Kubernetes' kinds and the project's.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), subresourcesv1alpha1.AddToScheme(scheme)); err != nil {
		panic(err)
	}
	return scheme
}

// Client is the administrator's. It knows the kinds of Scheme.
func (s *Server) Client() (client.WithWatch, error) { return s.client() }

// Admin is the administrator's client.
func (s *Server) Admin(t testing.TB) client.WithWatch {
	t.Helper()
	admin, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// Namespace creates a namespace for a test, and returns its name and the administrator's client.
func (s *Server) Namespace(t testing.TB, prefix string) (string, client.WithWatch) {
	t.Helper()
	admin := s.Admin(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name, admin
}

// AsOperator authenticates as the operator's account does.
func (s *Server) AsOperator() *rest.Config {
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: OperatorUser, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + OperatorNamespace, "system:authenticated"},
	}
	return config
}

// Find reads an object into an empty one, and says whether it is there.
func Find[T client.Object](t testing.TB, from client.Reader, key client.ObjectKey, into T) (T, bool) {
	t.Helper()
	err := from.Get(context.Background(), key, into)
	if client.IgnoreNotFound(err) != nil {
		t.Fatalf("read %T %s: %v", into, key, err)
	}
	return into, err == nil
}

// Read reads an object that has to be there.
func Read[T client.Object](t testing.TB, from client.Reader, key client.ObjectKey, into T) T {
	t.Helper()
	object, found := Find(t, from, key, into)
	if !found {
		t.Fatalf("there is no %T %s", into, key)
	}
	return object
}

// NewAccount creates a ServiceAccount with permissions, and returns a token for it.
func NewAccount(t testing.TB, admin client.Client, account client.ObjectKey, rules ...rbacv1.PolicyRule) (token string) {
	t.Helper()
	named := metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}
	objects := []client.Object{&corev1.ServiceAccount{ObjectMeta: named}}
	if len(rules) > 0 {
		objects = append(objects, &rbacv1.Role{ObjectMeta: named, Rules: rules}, &rbacv1.RoleBinding{
			ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
		})
	}
	for _, o := range objects {
		if err := admin.Create(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}
	return TokenOf(t, admin, account)
}

// TokenOf returns a new token of a ServiceAccount, for the API server if no audiences are given.
func TokenOf(t testing.TB, admin client.Client, account client.ObjectKey, audiences ...string) string {
	t.Helper()
	there := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if err := admin.SubResource("token").Create(context.Background(), there, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// Manifests reads the objects of files of config/.
func Manifests(files ...string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, file := range files {
		raw, err := os.ReadFile(Path("config", file))
		if err != nil {
			return nil, err
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := decoder.Decode(o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// Install installs files of config/, the admission policies that say who creates calls and sessions among them, and waits until
// those are in force. They leave namespaces out that Unstamp labels.
func (s *Server) Install(files ...string) error {
	objects, err := Manifests(files...)
	if err != nil {
		return err
	}
	admin, err := s.Client()
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetKind() == "MutatingAdmissionPolicyBinding" {
			without := []any{map[string]any{"key": unstamped, "operator": "DoesNotExist"}}
			if err := unstructured.SetNestedSlice(o.Object, without, "spec", "matchResources", "namespaceSelector", "matchExpressions"); err != nil {
				return err
			}
		}
		if err := admin.Create(context.Background(), o); err != nil {
			return fmt.Errorf("install %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return awaitProbes(admin, "default", func(o client.Object, err error) error {
		if call, ok := o.(*v1alpha1.ToolCall); err == nil && ok && call.Spec.RequestedBy == nil {
			return errors.New("requestedBy of a call is empty")
		}
		if session, ok := o.(*v1alpha1.ToolSession); err == nil && ok && session.Spec.RequestedBy == nil {
			return errors.New("requestedBy of a session is empty")
		}
		return err
	})
}

// Unstamp labels the namespace, and waits until a call and a session without their creator are refused.
func Unstamp(t testing.TB, admin client.Client, namespace string) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"`+unstamped+`": ""}}}`))
	err := admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patch)
	if err == nil {
		err = awaitProbes(admin, namespace, func(_ client.Object, err error) error {
			if err != nil && strings.Contains(err.Error(), "spec.requestedBy must be the user of the request") {
				return nil
			}
			return errors.Join(errors.New("not refused"), err)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitProbes creates a call and a session, as dry runs, until what becomes of both is right.
func awaitProbes(admin client.Client, namespace string, check func(client.Object, error) error) error {
	var wrong error
	err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		named := metav1.ObjectMeta{Namespace: namespace, Name: "probe"}
		call := &v1alpha1.ToolCall{ObjectMeta: named, Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "x"}}}
		session := &v1alpha1.ToolSession{ObjectMeta: named}
		wrong = errors.Join(check(call, admin.Create(ctx, call, client.DryRunAll)), check(session, admin.Create(ctx, session, client.DryRunAll)))
		return wrong == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the admission policies are not in force: %w", wrong)
	}
	return nil
}
