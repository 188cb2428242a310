package api_test

import (
	"sync"
	"testing"
)

// controllerManager is Kubernetes' own, for what its controllers do with the project's objects. It is started once, by
// the first test that needs it.
var controllerManager = sync.OnceValues(func() (there bool, err error) {
	stopControllerManager, there, err = installed.RunControllers(
		"--use-service-account-credentials=true", "--horizontal-pod-autoscaler-sync-period=1s", "--namespace-sync-period=1s",
		"--controllers=job-controller,garbage-collector-controller,namespace-controller,clusterrole-aggregation-controller,"+
			"horizontal-pod-autoscaler-controller,ttl-after-finished-controller,validatingadmissionpolicy-status-controller",
	)
	return there, err
})

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
