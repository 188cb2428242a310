package toolcall_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/fixture"
)

// An authorizer that fails has not said no, whatever it is configured to stand for when it does.
func TestAFailingAuthorizerIsNoAnswer(t *testing.T) {
	apiservertest.Needs(t)
	for _, policy := range []string{"NoOpinion", "Deny"} {
		t.Run("failurePolicy "+policy, func(t *testing.T) {
			t.Parallel()
			clients := authorizedBy(t, policy, func(user string) (answer *authorizationv1.SubjectAccessReviewStatus) {
				switch user {
				case "broken":
					return nil
				case "refused":
					return &authorizationv1.SubjectAccessReviewStatus{Denied: true}
				default:
					return &authorizationv1.SubjectAccessReviewStatus{}
				}
			})
			grantLs(t, clients, "granted")
			awaitGrant(t, clients, "granted")
			reviews := access.NewReviews(clients.AuthorizationV1().SubjectAccessReviews(), &fixture.ClockAt{At: time.Now()})
			for who, want := range map[string]struct{ may, fails bool }{
				"granted": {may: true}, "nobody": {}, "refused": {}, "broken": {fails: true},
			} {
				may, err := reviews.MayUse(t.Context(), &v1alpha1.Requester{Username: who}, "default", "ls")
				if may != want.may || (err != nil) != want.fails {
					t.Errorf("%s: may %t, %v", who, may, err)
				}
				if err != nil && !strings.Contains(err.Error(), "authorizer failed") {
					t.Errorf("%s: the error doesn't say who failed: %v", who, err)
				}
			}
		})
	}
}

// authorizedBy starts an API server that asks a webhook first, and RBAC then. The webhook fails where answer is nil.
func authorizedBy(t *testing.T, failurePolicy string, answer func(user string) *authorizationv1.SubjectAccessReviewStatus) *kubernetes.Clientset {
	t.Helper()
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		status := answer(review.Spec.User)
		if status == nil {
			http.Error(w, "out of order", http.StatusNotFound)
			return
		}
		review.Status = *status
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(webhook.Close)
	server := apiservertest.New(t, apiservertest.Options{Configure: func(env *envtest.Environment, _ string) error {
		env.ControlPlane.GetAPIServer().Configure().Disable("authorization-mode").
			Set("authorization-config", authorizationConfig(t, webhook, failurePolicy))
		return nil
	}})
	return kubernetes.NewForConfigOrDie(server.Config)
}

func authorizationConfig(t *testing.T, webhook *httptest.Server, failurePolicy string) (file string) {
	t.Helper()
	dir := t.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["webhook"] = &clientcmdapi.Cluster{
		Server:                   webhook.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}),
	}
	config.AuthInfos["nobody"] = &clientcmdapi.AuthInfo{}
	config.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook", AuthInfo: "nobody"}
	config.CurrentContext = "webhook"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "authorization.yaml")
	text := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: webhook
  webhook:
    authorizedTTL: 1s
    unauthorizedTTL: 1s
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: %s
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %s}
    matchConditions:
    - expression: has(request.resourceAttributes) && request.resourceAttributes.resource == 'tools'
- type: RBAC
  name: rbac
`, failurePolicy, kubeconfig)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func grantLs(t *testing.T, clients *kubernetes.Clientset, who string) {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: who},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"toolcall.dev"}, Resources: []string{"tools"}, ResourceNames: []string{"ls"}, Verbs: []string{"use"}}},
	}
	if _, err := clients.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, Subjects: []rbacv1.Subject{fixture.User(who)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: who},
	}
	if _, err := clients.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitGrant waits until the API server, which reads roles from its cache, lets a user use ls.
func awaitGrant(t *testing.T, clients *kubernetes.Clientset, who string) {
	t.Helper()
	fixture.Eventually(t, func() bool {
		review, err := clients.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: who, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: "default", Group: "toolcall.dev", Resource: "tools", Name: "ls", Verb: "use",
			}},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed
	})
}

// A call that nobody can decide about waits, and says so; it runs when the answer comes, and is refused when none
// comes for as long as it may wait for its start.
func TestACallWaitsForAnAnswerAboutItsCreatorAsLongAsItMayWaitForItsStart(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault, judged)
	who := w.Asker()
	over := w.RefuseReviews(who)
	answered, refused := w.Asked(who, "answered"), w.Asked(who, "refused")
	for _, call := range []*v1alpha1.ToolCall{answered, refused} {
		w.ExpectUndecided(call)
		w.Clock.At = w.Clock.At.Add(10 * time.Second)
		w.ExpectUndecided(call)
	}
	version := w.Get(refused).ResourceVersion
	w.ExpectUndecided(refused)
	if now := w.Get(refused).ResourceVersion; now != version {
		t.Errorf("asking again wrote the call, %s became %s", version, now)
	}
	w.Clock.At = w.Clock.At.Add(31 * time.Second)
	w.Reconcile(refused)
	s := w.Get(refused).Status
	if s.Phase != v1alpha1.PhaseDenied || s.Reason != v1alpha1.ReasonGuardError || !strings.Contains(s.Message, who) {
		t.Errorf("without an answer it ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	if w.HasJob(refused) {
		t.Error("it has a Job")
	}
	over()
	w.Reconcile(answered)
	now := w.Get(answered)
	if now.Status.Phase != v1alpha1.PhasePending || fixture.Condition(now, v1alpha1.ConditionAccepted) != metav1.ConditionTrue || !w.HasJob(answered) {
		t.Errorf("answered, it is %s/%s: %s", now.Status.Phase, now.Status.Reason, now.Status.Message)
	}
}

// A call was given a waiting pod, and the operator ended before it could hand the call over. What was decided is kept
// with the call: the next operator decides nothing again, and asks nobody.
func TestACallThatHasItsPodIsNotDecidedAboutAgain(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1), judged)
	runner := fixture.Only(w.WarmUp(env))
	who := w.Asker()
	call := w.Asked(who, "given")
	w.Use = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure { return fixture.AnswerIsLost }}
	w.Rebuild()
	if _, err := w.Reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)}); err == nil {
		t.Fatal("the write was not cut short")
	}
	w.Use = nil
	w.Restart()
	runner.Connect(w, "")
	w.RefuseReviews(who)
	if err := w.Client.Delete(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	w.Reconcile(call)
	if m := runner.Receive(); m.Assign == nil || m.Assign.CallUID != string(call.UID) {
		t.Errorf("got %+v, want the call", m)
	}
}

// judged holds an environment's calls to the built-in policy, which asks for a right, and gives them 30 s to start.
func judged(e *v1alpha1.ExecutionEnvironment) {
	e.Spec.PolicyRef, e.Spec.StartTimeoutSeconds = nil, ptr.To(int32(30))
}
