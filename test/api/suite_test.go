package api_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/whoami"
)

const root = "../.."

// installed is the API server of all tests, with config/default in it; nil when there is none.
var installed *apiServer

type apiServer struct {
	*apiservertest.Server
	admin client.Client
	// stamps says that the API server has MutatingAdmissionPolicy, which fills in who creates a call. Where it doesn't, clients
	// of the tests do that; raw ones don't.
	stamps bool
}

var suite = apiservertest.Suite{
	Setup: func(s *apiservertest.Server) (err error) {
		if installed, err = newAPIServer(s); err != nil {
			return err
		}
		return installed.setup()
	},
	Teardown: func() error {
		if stopControllerManager != nil {
			stopControllerManager()
		}
		return nil
	},
	Reads: []string{"config", "hack/lib.sh"},
}

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

func newAPIServer(server *apiservertest.Server) (*apiServer, error) {
	s := &apiServer{Server: server}
	served, err := s.Kubectl("", "get", "--raw", "/apis/admissionregistration.k8s.io/v1")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, served)
	}
	s.stamps = strings.Contains(served, `"mutatingadmissionpolicies"`)
	s.admin, err = s.client(server.Config)
	return s, err
}

// setup installs config/default, and waits until it is in force.
func (s *apiServer) setup() error {
	if err := s.install(); err != nil {
		return err
	}
	// Nobody answers for it here, and then no namespace can be deleted.
	if said, err := s.Kubectl("", "delete", "apiservice", "v1alpha1.subresources.toolcall.dev"); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return s.awaitInstalled()
}

// install applies what hack/deploy.sh applies: config/default, as far as the API server serves it.
func (s *apiServer) install() error {
	manifests, err := s.Kubectl("", "kustomize", filepath.Join(root, "config", "default"))
	if err != nil {
		return fmt.Errorf("%w: %s", err, manifests)
	}
	filter := exec.Command("bash", "-c", "source "+filepath.Join(root, "hack", "lib.sh")+"; only_served")
	filter.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "KUBECTL="+s.Command().Path)
	filter.Stdin = strings.NewReader(manifests)
	served, err := filter.Output()
	if err != nil {
		return fmt.Errorf("keep what is served: %w", err)
	}
	if said, err := s.Kubectl(string(served), "apply", "--server-side", "-f", "-"); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// client acts as the config's user, and says who that is where the API server doesn't find out by itself.
func (s *apiServer) client(config *rest.Config) (client.Client, error) {
	raw, err := client.NewWithWatch(config, client.Options{Scheme: apiservertest.Scheme()})
	if err != nil || s.stamps {
		return raw, err
	}
	users, err := authenticationv1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return whoami.NewClient(raw, users.SelfSubjectReviews()), nil
}

// needsStamp skips a test of what MutatingAdmissionPolicies do, where there are none.
func (s *space) needsStamp() {
	s.t.Helper()
	if !s.stamps {
		s.t.Skip("the API server has no MutatingAdmissionPolicy")
	}
}

// awaitInstalled waits until the kinds are served and the admission policies are in force.
func (s *apiServer) awaitInstalled() error {
	if said, err := s.Kubectl("", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	for _, args := range [][]string{
		{"clusterrolebinding", "probe", "--clusterrole=toolcall-admin", "--user=probe"},
		// The role of approvers has the verb "approve" too.
		{"clusterrole", "probe", "--verb=create", "--resource=toolcallapprovals.toolcall.dev"},
		{"clusterrolebinding", "probe-decides", "--clusterrole=probe", "--user=probe"},
	} {
		if said, err := s.Kubectl("", append([]string{"create"}, args...)...); err != nil && !strings.Contains(said, "already exists") {
			return fmt.Errorf("%w: %s", err, said)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, probe := range probes() {
		if err := s.awaitProbe(ctx, probe); err != nil {
			return fmt.Errorf("admission policy %s isn't in force: %w", probe.policy, err)
		}
	}
	return nil
}

// probe tells whether an admission policy is in force, by what becomes of a dry run.
type probe struct {
	policy string
	try    func(context.Context, *apiServer) error
}

func (s *apiServer) awaitProbe(ctx context.Context, p probe) error {
	for {
		err := p.try(ctx, s)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func probes() []probe {
	return []probe{
		{"toolcall-requested-by", func(ctx context.Context, s *apiServer) error {
			call := newCall("default", "probe")
			if err := s.admin.Create(ctx, call, client.DryRunAll); err != nil {
				return err
			}
			if call.Spec.RequestedBy == nil {
				return errors.New("requestedBy is empty")
			}
			return nil
		}},
		{"toolcall-create", func(ctx context.Context, s *apiServer) error {
			call := newCall("default", "probe")
			call.Spec.Shell = &v1alpha1.ShellAction{Command: "ls"}
			return refusedBy("toolcall-create", s.admin.Create(ctx, call, client.DryRunAll))
		}},
		{"toolcall-session-requested-by", func(ctx context.Context, s *apiServer) error {
			session := newSession("default", "probe")
			if err := s.admin.Create(ctx, session, client.DryRunAll); err != nil {
				return err
			}
			if session.Spec.RequestedBy == nil {
				return errors.New("requestedBy is empty")
			}
			return nil
		}},
		{"toolcall-session-spec", func(ctx context.Context, s *apiServer) error {
			session := newSession("default", "probe")
			session.Spec.Suspend = true
			return refusedBy("toolcall-session-spec", s.admin.Create(ctx, session, client.DryRunAll))
		}},
		{"toolcall-approval-identity", func(ctx context.Context, s *apiServer) error {
			probe, err := s.actAs("probe", asUser{})
			if err != nil {
				return err
			}
			return refusedBy("toolcall-approval-identity", probe.Create(ctx, newApproval("default", "probe"), client.DryRunAll))
		}},
		{"toolcall-policy-use", func(ctx context.Context, s *apiServer) error {
			env := newEnvironment("default", "probe")
			env.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "probe"}
			// A member of system:masters may use everything.
			probe, err := s.actAs("probe", asUser{})
			if err != nil {
				return err
			}
			return refusedBy("toolcall-policy-use", probe.Create(ctx, env, client.DryRunAll))
		}},
		{"toolcall-operator-account", func(ctx context.Context, s *apiServer) error {
			operator, err := s.actAs(operatorUser, anybody)
			if err != nil {
				return err
			}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
			return refusedBy("toolcall-operator-account", operator.Create(ctx, secret, client.DryRunAll))
		}},
		{"toolcall-operator-objects", func(ctx context.Context, s *apiServer) error {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
			secret.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
			return refusedBy("toolcall-operator-objects", s.admin.Create(ctx, secret, client.DryRunAll))
		}},
		{"toolcall-operator-templates", func(ctx context.Context, s *apiServer) error {
			// A Job without labels would get its pods'.
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe", Labels: map[string]string{"a": "b"}}}
			job.Spec.Template.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
			job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
			return refusedBy("toolcall-operator-templates", s.admin.Create(ctx, job, client.DryRunAll))
		}},
	}
}

// refusedBy is nil when an error comes from an admission policy.
func refusedBy(policy string, err error) error {
	if err == nil {
		return errors.New("what it refuses was taken")
	}
	if !strings.Contains(err.Error(), "'"+policy+"'") {
		return err
	}
	return nil
}

// space is a namespace of one test.
type space struct {
	*apiServer
	t         *testing.T
	namespace string
}

func newSpace(t *testing.T) *space {
	t.Helper()
	namespace, _ := suite.Need(t).Namespace(t, "t-")
	return &space{apiServer: installed, t: t, namespace: namespace}
}

// create makes objects as the administrator.
func (s *space) create(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		if err := s.admin.Create(s.t.Context(), o); err != nil {
			s.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// asUser is what an authenticator says about a user, besides the name.
type asUser struct {
	uid    string
	groups []string
	extra  map[string][]string
}

// actAs is a client that acts as a user.
func (s *apiServer) actAs(name string, user asUser) (client.Client, error) {
	return s.client(s.configOf(name, user))
}

func (s *apiServer) configOf(name string, user asUser) *rest.Config {
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: name, UID: user.uid, Groups: append(slices.Clone(user.groups), "system:authenticated"), Extra: user.extra,
	}
	return config
}

// raw acts as a user, and sends what the test says.
func (s *space) raw(name string, user asUser) client.Client {
	s.t.Helper()
	c, err := client.New(s.configOf(name, user), client.Options{Scheme: apiservertest.Scheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *space) as(name string, user asUser) client.Client {
	s.t.Helper()
	c, err := s.actAs(name, user)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// grant gives a user verbs on a resource of the project in the namespace.
func (s *space) grant(user, resource string, verbs ...string) {
	s.t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: "r-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"toolcall.dev"}, Resources: []string{resource}, Verbs: verbs}},
	}
	s.create(role)
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: "r-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

// run is kubectl in the space's namespace; a failure ends the test.
func (s *space) run(args ...string) string {
	s.t.Helper()
	said, err := s.Kubectl("", append([]string{"--namespace", s.namespace}, args...)...)
	if err != nil {
		s.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, said)
	}
	return said
}
