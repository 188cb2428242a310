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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
)

// run is where the benchmark runs on the cluster: namespaces and a policy of its own, so that nobody's quota,
// default environment or default policy takes part. Each kind of sample has a namespace to itself: what is seen
// there, and what the operator writes there, belongs to it.
type run struct {
	*Command
	say    func(format string, args ...any)
	client client.WithWatch
	// other is a second client, with its own connection.
	other   client.WithWatch
	clients kubernetes.Interface
	conf    *rest.Config
	// name is the policy's, and the beginning of the namespaces'.
	name string
	// fixtures are what a round measures, in order.
	fixtures []*fixture
	// activities of the operator during the rounds are by kind.
	activities map[string]*activity
	// stopAnswering ends the other client of the floor.
	stopAnswering func() error
}

func newRun(c *Command, say func(format string, args ...any)) (*run, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	conf, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	conf.QPS = -1
	r := &run{Command: c, say: say, name: "toolcall-bench-" + rand.String(5), activities: map[string]*activity{}, conf: conf}
	if r.client, err = cluster.Connect(conf); err != nil {
		return nil, err
	}
	if r.other, err = cluster.Connect(conf); err != nil {
		return nil, err
	}
	if r.clients, err = kubernetes.NewForConfig(conf); err != nil {
		return nil, fmt.Errorf("make the API client: %w", err)
	}
	r.fixtures, err = newFixtures(c, r.client, r.name)
	return r, err
}

// describe asks the cluster what it is.
func (r *run) describe(ctx context.Context) error {
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
	r.report.Image = r.image
	r.report.Machine = fmt.Sprintf("Kubernetes %s, %d node(s), the first with %d cores, Linux %s, %s", version.GitVersion,
		len(nodes.Items), node.Capacity.Cpu().Value(), node.NodeInfo.KernelVersion, node.NodeInfo.ContainerRuntimeVersion)
	return nil
}

// prepare makes the policy and the namespaces of what is measured, and waits until calls can run.
func (r *run) prepare(ctx context.Context) error {
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
	if err := cluster.Create(ctx, r.client, policy); err != nil {
		return err
	}
	for _, f := range r.fixtures {
		if err := f.create(ctx); err != nil {
			return err
		}
		if f.kind != kindFloor {
			continue
		}
		var err error
		if r.stopAnswering, err = cluster.Answer(ctx, r.other, f.Subject, r.answerSkill); err != nil {
			return err
		}
	}
	return nil
}

// answerSkill is the other client of the floor. Nothing else in the project writes Skills, so that what is left is the
// API server.
func (r *run) answerSkill(ctx context.Context, o client.Object) error {
	answered := o.DeepCopyObject().(*v1alpha1.Skill)
	answered.Spec.Description = answer
	return r.other.Patch(ctx, answered, client.MergeFrom(o))
}

// fixture is that of a kind; nil when it isn't measured.
func (r *run) fixture(kind string) *fixture {
	for _, f := range r.fixtures {
		if f.kind == kind {
			return f
		}
	}
	return nil
}

// cleanupTimeout bounds the deletion of the namespaces with all that is in them: thousands of calls, after sessions.
const cleanupTimeout = 5 * time.Minute

// remove deletes the namespaces with all that is in them, and the policy; also after an interrupt.
func (r *run) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	r.say("removing namespaces %s-...", r.name)
	var failures []error
	if r.stopAnswering != nil {
		failures = append(failures, r.stopAnswering())
	}
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
	failures = append(failures, client.IgnoreNotFound(r.client.Delete(ctx, policy)))
	for _, f := range r.fixtures {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace}}
		failures = append(failures, client.IgnoreNotFound(r.client.Delete(ctx, namespace)))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return cluster.Eventually(ctx, "the namespaces to be gone", func(ctx context.Context) (bool, error) {
		for _, f := range r.fixtures {
			err := r.client.Get(ctx, client.ObjectKey{Name: f.Namespace}, &corev1.Namespace{})
			if !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return true, nil
	})
}
