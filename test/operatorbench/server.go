package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
)

// Where the operator is installed, and who it is.
const (
	operatorNamespace = "toolcall-system"
	operatorAccount   = "toolcall-operator"
	operatorUser      = "system:serviceaccount:" + operatorNamespace + ":" + operatorAccount
	// jobController makes pods of the operator's Jobs; the admission policies let nobody else.
	jobController = "system:serviceaccount:kube-system:job-controller"
)

// auditPolicy records what the operator asks, and of nobody else anything.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    users: ["` + operatorUser + `"]
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
`

// server is etcd and an API server with the project installed, and a folder for what belongs to them.
type server struct {
	env    *envtest.Environment
	conf   *rest.Config
	client client.WithWatch
	// operator and jobs act in those names.
	operator client.Client
	jobs     client.Client
	folder   string
	auditLog string
	// ports are the operator's.
	ports []string
}

func startServer(ctx context.Context) (*server, error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return nil, errors.New("KUBEBUILDER_ASSETS is not set: it must be the folder that 'make -s envtest-assets' prints")
	}
	folder, err := os.MkdirTemp("", "operatorbench-")
	if err != nil {
		return nil, err
	}
	s := &server{folder: folder, auditLog: filepath.Join(folder, "audit.log")}
	policy := filepath.Join(folder, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	s.env = &envtest.Environment{CRDDirectoryPaths: []string{"config/crd"}, ErrorIfCRDPathMissing: true}
	s.env.ControlPlane.GetAPIServer().Configure().Set("audit-policy-file", policy).Set("audit-log-path", s.auditLog)
	s.env.ControlPlane.Etcd = &envtest.Etcd{}
	// It is the operator that is measured, not the disk.
	s.env.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true").Set("quota-backend-bytes", "8589934592")
	if s.conf, err = s.env.Start(); err != nil {
		s.stop()
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	if err := s.install(ctx, s.conf); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *server) stop() {
	_ = s.env.Stop()
	_ = os.RemoveAll(s.folder)
}

// install puts in place all that the operator needs but its Deployment.
func (s *server) install(ctx context.Context, conf *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("build the scheme: %w", err)
	}
	conf.QPS = -1
	var err error
	if s.client, err = client.NewWithWatch(conf, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	if s.operator, err = actAs(conf, scheme, operatorUser); err != nil {
		return err
	}
	if s.jobs, err = actAs(conf, scheme, jobController); err != nil {
		return err
	}
	for _, pattern := range []string{"config/manager/namespace.yaml", "config/rbac/*.yaml", "config/admission/*.yaml", "config/manager/service.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return fmt.Errorf("no manifests are at %s: run this from the root of the project", pattern)
		}
		for _, file := range files {
			if err := s.apply(ctx, file); err != nil {
				return fmt.Errorf("install %s: %w", file, err)
			}
		}
	}
	return s.writeKubeconfig(ctx, conf)
}

// actAs is a client in another's name, with the rights of an administrator.
func actAs(conf *rest.Config, scheme *runtime.Scheme, user string) (client.Client, error) {
	conf = rest.CopyConfig(conf)
	conf.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters", "system:authenticated"}}
	c, err := client.New(conf, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("act as %s: %w", user, err)
	}
	return c, nil
}

func (s *server) apply(ctx context.Context, file string) error {
	raw, err := os.ReadFile(file)
	if err != nil || filepath.Base(file) == "kustomization.yaml" {
		return err
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

func (s *server) kubeconfig() string { return filepath.Join(s.folder, "kubeconfig") }

// writeKubeconfig lets the operator in as its service account: with the rights that it has anywhere.
func (s *server) writeKubeconfig(ctx context.Context, conf *rest.Config) error {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = operatorNamespace, operatorAccount
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(24 * time.Hour / time.Second))}}
	if err := s.client.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("make the operator's token: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["here"] = &clientcmdapi.Cluster{Server: conf.Host, CertificateAuthorityData: conf.CAData}
	config.AuthInfos["operator"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["here"] = &clientcmdapi.Context{Cluster: "here", AuthInfo: "operator"}
	config.CurrentContext = "here"
	if err := clientcmd.WriteToFile(*config, s.kubeconfig()); err != nil {
		return fmt.Errorf("write the operator's kubeconfig: %w", err)
	}
	return nil
}

func (s *server) identityDir() string { return filepath.Join(s.folder, "identity") }

// mountIdentity puts the operator's identity, once it has made one, where a kubelet would.
func (s *server) mountIdentity(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "toolcall-identity"}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get the operator's identity: %w", err)
	}
	if err := os.MkdirAll(s.identityDir(), 0o700); err != nil {
		return fmt.Errorf("mount the operator's identity: %w", err)
	}
	for name, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(s.identityDir(), name), data, 0o600); err != nil {
			return fmt.Errorf("mount the operator's identity: %w", err)
		}
	}
	return nil
}

// profile saves the API server's CPU profile of so many seconds in the folder.
func (s *server) profile(ctx context.Context, folder, name string, seconds int) error {
	http, err := rest.HTTPClientFor(s.conf)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	raw, err := fetchWith(ctx, http, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", strings.TrimSuffix(s.conf.Host, "/"), seconds))
	if err != nil {
		return fmt.Errorf("profile the API server: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+".pprof"), raw, 0o644)
}
