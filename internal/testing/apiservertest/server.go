// Package apiservertest runs etcd and an API server for tests, with what of config/ a test asks for.
//
// A package whose tests share a server has a Suite, a test with a server of its own calls New, and a program calls Start. The
// programs are those of KUBEBUILDER_ASSETS; without it, tests are skipped. A server ends with the process that started it,
// however that ends, and leaves nothing behind.
package apiservertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// ErrNoAssets says why there is no API server.
var ErrNoAssets = errors.New("needs an API server: set KUBEBUILDER_ASSETS, e.g. to the output of 'make -s envtest-assets'")

// startTimeout bounds the start of each program. It covers a machine that is busy with the local cluster.
const startTimeout = 10 * time.Minute

// Assets is the folder of the programs; empty when there is none.
func Assets() string { return os.Getenv("KUBEBUILDER_ASSETS") }

// Options describe a server.
type Options struct {
	// CRDs has the project's kinds installed.
	CRDs bool
	// Configure sets flags. The folder is for files that they name; it is deleted with the server.
	Configure func(env *envtest.Environment, folder string) error
	// Assets is the folder of the programs; empty for that of KUBEBUILDER_ASSETS.
	Assets string
	// EtcdData is where etcd keeps its data, so that another server can go on with it; empty for a folder that is deleted.
	EtcdData string
}

// Server is etcd and an API server.
type Server struct {
	// Config is the administrator's. It has no limit on requests.
	Config *rest.Config
	// Kubeconfig is a file with the administrator's client certificate.
	Kubeconfig string

	env    *envtest.Environment
	assets string
	guard  *guard
	stop   func() error
	client func() (client.WithWatch, error)
}

var quietly = sync.OnceFunc(func() { ctrl.SetLogger(logr.Discard()) })

// New runs a server until the test ends.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	Needs(t)
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if o.CRDs {
		Reads(t, "config/crd")
	}
	return s
}

// Needs skips a test where no API server can be started.
func Needs(t testing.TB) {
	t.Helper()
	if Assets() == "" {
		t.Skip(ErrNoAssets)
	}
}

// Start starts a server. Nothing is left when that fails.
func Start(o Options) (s *Server, err error) {
	quietly()
	if o.Assets == "" {
		o.Assets = Assets()
	}
	if o.Assets == "" {
		return nil, ErrNoAssets
	}
	s = &Server{env: &envtest.Environment{ControlPlaneStartTimeout: startTimeout, ErrorIfCRDPathMissing: true}, assets: o.Assets}
	s.stop = sync.OnceValue(s.end)
	s.client = sync.OnceValues(func() (client.WithWatch, error) {
		return client.NewWithWatch(s.Config, client.Options{Scheme: Scheme()})
	})
	if s.guard, err = newGuard(); err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	if err := s.start(o); err != nil {
		return nil, fmt.Errorf("start the API server: %w", errors.Join(err, s.Stop()))
	}
	return s, nil
}

func (s *Server) start(o Options) (err error) {
	s.env.ControlPlane.Etcd = &envtest.Etcd{DataDir: o.EtcdData}
	if o.EtcdData == "" {
		s.env.ControlPlane.Etcd.DataDir = s.guard.path("etcd-data")
	}
	server := s.env.ControlPlane.GetAPIServer()
	server.CertDir = s.guard.path("certificates")
	if err := os.Mkdir(server.CertDir, 0o700); err != nil {
		return err
	}
	if s.env.ControlPlane.Etcd.Path, err = s.guard.guarded(s.program("etcd")); err != nil {
		return err
	}
	if server.Path, err = s.guard.guarded(s.program("kube-apiserver")); err != nil {
		return err
	}
	if o.CRDs {
		s.env.CRDDirectoryPaths = []string{Path("config", "crd")}
	}
	if o.Configure != nil {
		if err := o.Configure(s.env, s.guard.folder); err != nil {
			return err
		}
	}
	if s.Config, err = s.env.Start(); err != nil {
		return err
	}
	s.Config.QPS = -1
	s.Kubeconfig = s.guard.path("kubeconfig")
	return os.WriteFile(s.Kubeconfig, s.env.KubeConfig, 0o600)
}

// Stop ends the server, once, and deletes its files.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) end() error {
	err := s.env.Stop()
	return errors.Join(err, s.guard.end())
}

func (s *Server) program(name string) string { return filepath.Join(s.assets, name) }

// InstallCRDs installs the project's kinds in a server that was started without them.
func (s *Server) InstallCRDs() error {
	_, err := envtest.InstallCRDs(s.Config, envtest.CRDInstallOptions{Paths: []string{Path("config", "crd")}, ErrorIfPathMissing: true})
	return err
}

// KubeconfigOf is a kubeconfig with a client certificate for a user.
func (s *Server) KubeconfigOf(user string, groups ...string) ([]byte, error) {
	made, err := s.env.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	if err != nil {
		return nil, fmt.Errorf("make credentials: %w", err)
	}
	return made.KubeConfig()
}

// Processes are the ids of etcd and of the API server.
func (s *Server) Processes() (etcd, server int, err error) {
	running, err := os.ReadFile(s.guard.path("running"))
	if err == nil {
		_, err = fmt.Sscan(string(running), &etcd, &server)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("find the processes of the API server: %w", err)
	}
	return etcd, server, nil
}

// Command is the API server's own kubectl, as the administrator.
func (s *Server) Command(args ...string) *exec.Cmd {
	return exec.Command(s.program("kubectl"), append([]string{"--kubeconfig", s.Kubeconfig}, args...)...)
}

// Kubectl runs kubectl as the administrator, and returns all that it printed.
func (s *Server) Kubectl(stdin string, args ...string) (string, error) {
	command := s.Command(args...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	return string(bytes.TrimSpace(out)), err
}

// RunControllers runs controllers of Kubernetes until stop. There is none where no kube-controller-manager is beside the API server:
// the local cluster builds one, envtest needs none.
func (s *Server) RunControllers(args ...string) (stop func(), there bool, err error) {
	server, err := filepath.EvalSymlinks(s.program("kube-apiserver"))
	if err != nil {
		return nil, false, fmt.Errorf("find the API server: %w", err)
	}
	program := filepath.Join(filepath.Dir(server), "kube-controller-manager")
	if _, err := os.Stat(program); os.IsNotExist(err) {
		return nil, false, nil
	}
	if program, err = s.guard.guarded(program); err != nil {
		return nil, false, err
	}
	command := exec.Command(program, append([]string{
		"--kubeconfig=" + s.Kubeconfig, "--authentication-kubeconfig=" + s.Kubeconfig, "--authorization-kubeconfig=" + s.Kubeconfig,
		"--leader-elect=false", "--secure-port=0",
	}, args...)...)
	command.SysProcAttr = ownGroup()
	if err := command.Start(); err != nil {
		return nil, false, fmt.Errorf("start kube-controller-manager: %w", err)
	}
	return func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}, true, nil
}
