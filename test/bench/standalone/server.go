// Package standalone runs the operator without a node: etcd and an API server of its own with the project of a checkout
// installed, the operator's program as a process, as its service account, and what these processes use. It needs the
// programs of KUBEBUILDER_ASSETS and that checkout, and changes nothing outside a temporary folder.
package standalone

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

// What is in a server's folder.
const (
	auditLog   = "audit.log"
	managerLog = "manager.log"
	kubeconfig = "kubeconfig"
	identity   = "identity"
)

// auditPolicy records what the operator asks, and of nobody else anything.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    users: ["` + apiservertest.OperatorUser + `"]
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
`

// manifests are what is installed: all that the operator needs but its Deployment.
var manifests = []string{"config/manager/namespace.yaml", "config/rbac", "config/admission", "config/manager/service.yaml"}

// Server is etcd and an API server with the project installed, and a folder for what belongs to them.
type Server struct {
	Conf   *rest.Config
	Client client.WithWatch
	// Checkout is the folder of the project.
	Checkout string

	api    *apiservertest.Server
	folder string
	audit  measure.AuditLog
	// processes are those whose time counts, by their id.
	processes map[int]string
	// admission is when the admission policies came into force.
	admission time.Time
}

// StartServer returns when admission does what the operator relies on.
func StartServer(ctx context.Context, checkout string) (*Server, error) {
	folder, err := os.MkdirTemp("", "toolcall-bench-")
	if err != nil {
		return nil, err
	}
	s := &Server{Checkout: checkout, folder: folder, processes: map[int]string{}}
	s.audit = measure.AuditLog{File: s.path(auditLog), User: apiservertest.OperatorUser}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) (err error) {
	s.api, err = apiservertest.Start(apiservertest.Options{Configure: s.configure})
	if err != nil {
		return err
	}
	etcd, server, err := s.api.Processes()
	if err != nil {
		return err
	}
	s.processes[etcd], s.processes[server] = Etcd, APIServer
	s.Conf = s.api.Config
	if s.Client, err = cluster.Connect(s.Conf); err != nil {
		return err
	}
	if err := s.install(ctx); err != nil {
		return err
	}
	if err := s.writeKubeconfig(); err != nil {
		return err
	}
	return s.awaitAdmission(ctx)
}

// configure has the checkout's kinds installed, and the operator's writes recorded.
func (s *Server) configure(env *envtest.Environment, folder string) error {
	env.CRDDirectoryPaths = []string{filepath.Join(s.Checkout, "config/crd")}
	policy := filepath.Join(folder, "audit-policy.yaml")
	env.ControlPlane.GetAPIServer().Configure().Set("audit-policy-file", policy).Set("audit-log-path", s.path(auditLog))
	// It is not the disk that is measured.
	env.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true").Set("quota-backend-bytes", "8589934592")
	return os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// Stop ends both processes and deletes the folder.
func (s *Server) Stop() {
	if s.api != nil {
		_ = s.api.Stop()
	}
	_ = os.RemoveAll(s.folder)
}

// path of what belongs to the server.
func (s *Server) path(name string) string { return filepath.Join(s.folder, name) }

// Explain adds the end of the operator's log to an error, if there are both.
func (s *Server) Explain(err error) error {
	raw, _ := os.ReadFile(s.path(managerLog))
	if err == nil || len(raw) == 0 {
		return err
	}
	return fmt.Errorf("%w\nThe operator's log ends with\n%s", err, raw[max(0, len(raw)-4000):])
}

func (s *Server) install(ctx context.Context) error {
	for _, path := range manifests {
		objects, err := ReadManifests(filepath.Join(s.Checkout, path))
		if err != nil {
			return err
		}
		for _, o := range objects {
			if strings.HasPrefix(o.GetName(), "toolcall-operator-") && o.GroupVersionKind().Group == "admissionregistration.k8s.io" {
				// These hold the operator's own Jobs, Secrets and pods, whose other actors the benchmark plays itself.
				continue
			}
			if err := s.Client.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
				return fmt.Errorf("install %s: %w", path, err)
			}
		}
	}
	return nil
}

// ReadManifests reads the objects of a file, or of a folder for kustomize.
func ReadManifests(path string) ([]*unstructured.Unstructured, error) {
	from := &resource.FilenameOptions{Filenames: []string{path}}
	if filepath.Ext(path) == "" {
		from = &resource.FilenameOptions{Kustomize: path}
	}
	infos, err := resource.NewLocalBuilder().Unstructured().FilenameParam(false, from).Flatten().Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("read the manifests (is it the root of the project?): %w", err)
	}
	objects := make([]*unstructured.Unstructured, len(infos))
	for i, info := range infos {
		objects[i] = info.Object.(*unstructured.Unstructured)
	}
	return objects, nil
}

// awaitAdmission waits until creators are stamped.
func (s *Server) awaitAdmission(ctx context.Context) error {
	err := cluster.AwaitStamp(ctx, s.Client, apiservertest.OperatorNamespace)
	s.admission = time.Now()
	return err
}

// writeKubeconfig lets the operator in as its service account: with the rights that it has anywhere.
func (s *Server) writeKubeconfig() error {
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + apiservertest.OperatorNamespace}
	raw, err := s.api.KubeconfigOf(apiservertest.OperatorUser, groups...)
	if err != nil {
		return fmt.Errorf("make the operator's kubeconfig: %w", err)
	}
	return os.WriteFile(s.path(kubeconfig), raw, 0o600)
}
