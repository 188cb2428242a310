package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

// bench is where the benchmark runs.
type bench struct {
	*Command
	report  *measure.Report
	client  client.WithWatch
	clients kubernetes.Interface
	conf    *rest.Config
	// name begins the names of all that is made.
	name string
}

func newBench(c *Command, report *measure.Report) (*bench, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	conf, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	conf.QPS = -1
	r := &bench{Command: c, report: report, name: "toolcall-bench-" + rand.String(5), conf: conf}
	if r.client, err = cluster.Connect(conf); err != nil {
		return nil, err
	}
	if r.clients, err = kubernetes.NewForConfig(conf); err != nil {
		return nil, fmt.Errorf("make the API client: %w", err)
	}
	return r, nil
}

// describe asks the cluster what it is.
func (r *bench) describe(ctx context.Context) error {
	version, err := r.clients.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("reach the cluster: %w", err)
	}
	nodes, err := r.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look at the cluster's nodes: %w", err)
	}
	if len(nodes.Items) == 0 {
		return errors.New("the cluster has no nodes")
	}
	node := nodes.Items[0].Status
	r.report.Machine = fmt.Sprintf("Kubernetes %s, %d node(s), the first with %d cores, Linux %s, %s", version.GitVersion,
		len(nodes.Items), node.Capacity.Cpu().Value(), node.NodeInfo.KernelVersion, node.NodeInfo.ContainerRuntimeVersion)
	return nil
}

// part is one part of a run, with what it made.
type part struct {
	*bench
	name  string
	rooms []*room
	// stops end what was started, the last one first.
	stops []func() error
}

// inTurns measures scenarios of the part.
func (p *part) inTurns(ctx context.Context, scenarios ...*measure.Scenario) error {
	return p.report.InTurns(ctx, p.name, p.rounds, scenarios...)
}

// endTimeout bounds the deletion of namespaces with thousands of calls.
const endTimeout = 5 * time.Minute

// end removes all that the part has made; also after an interrupt.
func (p *part) end(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	failures := []error{err}
	for i := len(p.stops) - 1; i >= 0; i-- {
		failures = append(failures, p.stops[i]())
	}
	for _, r := range p.rooms {
		for _, o := range []client.Object{&v1alpha1.ExecutionPolicy{}, &corev1.Namespace{}} {
			o.SetName(r.namespace)
			failures = append(failures, client.IgnoreNotFound(p.client.Delete(ctx, o)))
		}
	}
	gone := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		for _, r := range p.rooms {
			for _, o := range []client.Object{&v1alpha1.ExecutionPolicy{}, &corev1.Namespace{}} {
				if err := p.client.Get(ctx, client.ObjectKey{Name: r.namespace}, o); !apierrors.IsNotFound(err) {
					return false, err
				}
			}
		}
		return true, nil
	})
	if gone != nil {
		failures = append(failures, fmt.Errorf("wait for the namespaces and policies to be gone: %w", gone))
	}
	p.rooms, p.stops = nil, nil
	return errors.Join(failures...)
}
