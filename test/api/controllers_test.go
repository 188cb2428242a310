package api_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// controllerManager is Kubernetes' own, for what its controllers do with the project's objects. It is started once, by
// the first test that needs it.
var controllerManager = sync.OnceValues(startControllerManager)

// stopControllerManager ends it; nil when none was started.
var stopControllerManager func()

// withControllers skips a test where there is no kube-controller-manager beside the API server: the local cluster
// builds one, envtest needs none.
func withControllers(t *testing.T) {
	t.Helper()
	there, err := controllerManager()
	if err != nil {
		t.Fatal(err)
	}
	if !there {
		t.Skip("needs kube-controller-manager beside kube-apiserver: make cluster-build")
	}
}

func startControllerManager() (there bool, err error) {
	server, err := filepath.EvalSymlinks(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-apiserver"))
	if err != nil {
		return false, fmt.Errorf("find the API server: %w", err)
	}
	program := filepath.Join(filepath.Dir(server), "kube-controller-manager")
	if _, err := os.Stat(program); os.IsNotExist(err) {
		return false, nil
	}
	command := exec.Command(program,
		"--kubeconfig="+installed.kubeconfig, "--authentication-kubeconfig="+installed.kubeconfig, "--authorization-kubeconfig="+installed.kubeconfig,
		"--use-service-account-credentials=true", "--leader-elect=false", "--secure-port=0",
		"--horizontal-pod-autoscaler-sync-period=1s", "--namespace-sync-period=1s",
		"--controllers=job-controller,garbage-collector-controller,namespace-controller,clusterrole-aggregation-controller,"+
			"horizontal-pod-autoscaler-controller,ttl-after-finished-controller,validatingadmissionpolicy-status-controller",
	)
	if err := command.Start(); err != nil {
		return false, fmt.Errorf("start kube-controller-manager: %w", err)
	}
	stopControllerManager = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	return true, nil
}
