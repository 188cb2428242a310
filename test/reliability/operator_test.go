package reliability

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	operatorNamespace = "toolcall-system"
	// mostMemory is what the operator may have resident with ten thousand finished calls in the cluster; its
	// deployment's limit is 512 MiB.
	mostMemory = 128 << 20
	// settle is how long the operator is watched at rest.
	settle = 30 * time.Second
)

func requireMeasuring(t *testing.T) {
	t.Helper()
	if os.Getenv("TOOLCALL_MEASURE") != "1" {
		t.Skip("measurements run with TOOLCALL_MEASURE=1; `make bench-footprint` does that")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What the operator costs at rest, by the number of finished calls that the cluster remembers.
func TestOperatorWithManyFinishedCalls(t *testing.T) {
	requireMeasuring(t)
	env := &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join("..", "..", "config", "crd")}, ErrorIfCRDPathMissing: true}
	config, err := env.Start()
	must(t, err)
	t.Cleanup(func() { must(t, env.Stop()) })
	config.QPS, config.Burst = 500, 1000
	scheme := runtime.NewScheme()
	must(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}))
	must(t, c.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "toolcall-dispatch"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 9443}}},
	}))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(kubeconfig, env.KubeConfig, 0o600))

	there := 0
	for _, count := range []int{0, 1000, 10000} {
		finishCalls(t, c, there, count)
		there = count
		cost := measure(t, kubeconfig)
		t.Logf("%5d finished calls: %5.1f MiB resident, %5.1f MiB of it Go's heap in use, %.2f %% of a processor over %s at rest, ready after %.1f s, knows the calls that ended after %.1f s",
			count, cost.resident/(1<<20), cost.heap/(1<<20), 100*cost.load, settle, cost.start, cost.learned)
		if cost.resident > mostMemory {
			t.Errorf("with %d finished calls it has %.0f MiB resident; the ceiling is %d MiB", count, cost.resident/(1<<20), mostMemory>>20)
		}
	}
}

// finishCalls makes calls that have ended, as an administrator can: the object, and then its status. Each has a
// command and output of some KiB, so that a cache which kept them would show.
func finishCalls(t *testing.T, c client.Client, from, to int) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	filler := fmt.Sprintf("%4096d", 1)
	for i := from; i < to; i++ {
		group.Go(func() error {
			call := &v1alpha1.ToolCall{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("call-%05d", i)},
				Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "true #" + filler}, TTLSecondsAfterFinished: ptr.To(int32(86400))},
			}
			if err := c.Create(context.Background(), call); err != nil {
				return err
			}
			now := metav1.Now()
			call.Status = v1alpha1.ToolCallStatus{
				Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Message: "the command exited with code 0",
				ExitCode: ptr.To(int32(0)), Stdout: filler, Output: filler,
				Conditions: []metav1.Condition{{
					Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCompleted, LastTransitionTime: now,
				}},
			}
			return c.Status().Update(context.Background(), call)
		})
	}
	must(t, group.Wait())
}

// cost is what one operator process took.
type cost struct{ resident, heap, load, start, learned float64 }

// measure runs the operator until its caches are filled, and then for a while.
func measure(t *testing.T, kubeconfig string) cost {
	t.Helper()
	metricsAddress, healthAddress, dispatchAddress := free(t), free(t), free(t)
	began := time.Now()
	manager := exec.Command(filepath.Join("..", "..", "bin", "manager"),
		"--runner-image=example.com/runner:1", "--leader-elect=false", "--identity-dir="+t.TempDir(),
		"--metrics-address="+metricsAddress, "--health-address="+healthAddress, "--dispatch-address="+dispatchAddress,
		"--identity-secret=identity-"+filepath.Base(t.TempDir())+fmt.Sprint(began.UnixNano()))
	manager.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+operatorNamespace, "POD_IP=127.0.0.1")
	log := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(log)
	must(t, err)
	defer file.Close()
	manager.Stdout, manager.Stderr = file, file
	must(t, manager.Start())
	defer func() {
		_ = manager.Process.Kill()
		_ = manager.Wait()
	}()
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+healthAddress+"/readyz", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		said, _ := os.ReadFile(log)
		t.Fatalf("the operator did not become ready: %v\n%s", err, said)
	}
	result := cost{start: time.Since(began).Seconds()}
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		said, err := os.ReadFile(log)
		return bytes.Contains(said, []byte("Know which calls ended before")), err
	})
	if err != nil {
		t.Fatalf("the operator did not learn which calls have ended: %v", err)
	}
	result.learned = time.Since(began).Seconds()
	before := scrape(t, metricsAddress)["process_cpu_seconds_total"]
	time.Sleep(settle)
	after := scrape(t, metricsAddress)
	result.load = (after["process_cpu_seconds_total"] - before) / settle.Seconds()
	result.resident, result.heap = after["process_resident_memory_bytes"], after["go_memstats_heap_inuse_bytes"]
	return result
}

// free is an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// scrape reads the metrics that have no labels.
func scrape(t *testing.T, address string) map[string]float64 {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	must(t, err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	must(t, err)
	values := map[string]float64{}
	for name, family := range families {
		if len(family.Metric) == 1 && len(family.Metric[0].Label) == 0 {
			values[name] = family.Metric[0].GetGauge().GetValue() + family.Metric[0].GetCounter().GetValue()
		}
	}
	return values
}
