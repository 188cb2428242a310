package calls

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

const (
	// callsPerRound are those in a ready session, and as many of the floor; execsPerRound is how often a round has what a user
	// would do instead; filesPerRound is for each kind of file action.
	callsPerRound = 30
	execsPerRound = 6
	filesPerRound = 10
	// sessions that run calls at the same time, and clients of each, with one call on its way at a time.
	sessions       = 16
	sessionClients = 2
	clients        = sessions * sessionClients
	callsPerClient = 30
	// keptCalls is how many finished calls of a session the operator leaves; what ends beyond that, it deletes.
	keptCalls = 200
	// execPod is a pod that is there.
	execPod = "there"
)

// speaker has calls run in a session.
type speaker struct {
	session *v1alpha1.ToolSession
	tracker *cluster.Tracker
}

// newSpeaker opens a session in a room of its own.
func (p *part) newSpeaker(ctx context.Context, name string, policy v1alpha1.ExecutionPolicySpec, concurrent int) (*speaker, error) {
	r, err := p.newCallRoom(ctx, name, policy)
	if err != nil {
		return nil, err
	}
	s := &speaker{session: cluster.NewSession(r.namespace, "one", concurrent)}
	if err := cluster.Open(ctx, p.client, s.session); err != nil {
		return nil, err
	}
	s.tracker, err = p.track(ctx, r.namespace, &v1alpha1.ToolCallList{}, cluster.CallDone)
	return s, err
}

// run has a call run, of the shortest command if the action is nil.
func (s *speaker) run(ctx context.Context, name string, action *v1alpha1.ToolCallSpec) error {
	call := cluster.CallOf(s.session, name)
	if action != nil {
		call.Spec.Structured, call.Spec.Code, call.Spec.File = action.Structured.DeepCopy(), action.Code.DeepCopy(), action.File.DeepCopy()
	}
	_, err := s.tracker.Run(ctx, call)
	return err
}

// sessionScenario is calls of the shortest command in a session under a policy.
func (p *part) sessionScenario(title, room string, policy v1alpha1.ExecutionPolicySpec, against ...string) *measure.Scenario {
	var s *speaker
	return &measure.Scenario{
		Name: title, Against: against, Each: callsPerRound,
		Prepare: func(ctx context.Context) (err error) {
			s, err = p.newSpeaker(ctx, room, policy, 1)
			return err
		},
		Operate: func(ctx context.Context, n int) error { return s.run(ctx, fmt.Sprintf("call-%06d", n), nil) },
	}
}

// floorScenario is calls of the floor, one at a time.
func (p *part) floorScenario(each int) *measure.Scenario {
	var f *floor
	return &measure.Scenario{
		Name: floorTitle, Each: each,
		Prepare: func(ctx context.Context) (err error) {
			f, err = p.newFloor(ctx)
			return err
		},
		Operate: func(ctx context.Context, n int) error { return f.run(ctx, fmt.Sprintf("call-%06d", n)) },
	}
}

// measureSessions measures calls in a ready session one at a time: beside the floor, an exec into a pod that is there already, a
// warm call, and a session without what the default policy restricts of the network.
func (p *part) measureSessions(ctx context.Context) error {
	const call, unrestricted = "call in a ready session", "call in a ready session, network unrestricted"
	open := v1alpha1.ExecutionPolicySpec{Network: &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}}
	var there *room
	exec := &measure.Scenario{
		Name: "exec from this process", Each: execsPerRound,
		Prepare: func(ctx context.Context) (err error) {
			if there, err = p.newRoom(ctx, "exec"); err != nil {
				return err
			}
			return p.startPod(ctx, there.namespace, execPod, "sleep", "86400")
		},
		Operate: func(ctx context.Context, _ int) error { return p.execTrue(ctx, there.namespace) },
	}
	kubectl := &measure.Scenario{
		Name: "kubectl exec", Each: execsPerRound,
		Operate: func(ctx context.Context, _ int) error {
			return execute(ctx, p.kubectl, "-n", there.namespace, "exec", execPod, "--", "true")
		},
	}
	return p.inTurns(ctx, p.floorScenario(callsPerRound), exec, kubectl, p.scenario(warmCall, execsPerRound),
		p.sessionScenario(unrestricted, "unrestricted", open, floorTitle),
		p.sessionScenario(call, "default", v1alpha1.ExecutionPolicySpec{},
			floorTitle, unrestricted, warmCall.title, exec.Name, kubectl.Name))
}

// startPod starts a pod like a bare one with a command, and waits until it runs.
func (p *part) startPod(ctx context.Context, namespace, name string, command ...string) error {
	spec, err := bareSpec(p.image)
	if err != nil {
		return err
	}
	spec.Containers[0].Command = command
	// The commands don't end when they are asked to.
	spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: *spec}
	if err := cluster.Create(ctx, p.client, pod); err != nil {
		return err
	}
	return cluster.Eventually(ctx, "pod "+name, func(ctx context.Context) (bool, error) {
		err := p.client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return podReady(&pod.Status), err
	})
}

// execTrue runs true in the pod that is there, as kubectl does, on a connection of its own.
func (p *part) execTrue(ctx context.Context, namespace string) error {
	url := p.clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(execPod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"true"}, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(p.conf, "GET", url.String())
	if err != nil {
		return fmt.Errorf("make the executor: %w", err)
	}
	var stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: &stderr}); err != nil {
		return fmt.Errorf("run true in pod %s: %w: %s", execPod, err, stderr.Bytes())
	}
	return nil
}

// execute runs a program to its end.
func execute(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// measureSustained has clients of many sessions work as fast as they can, in turns with as many of the floor.
func (p *part) measureSustained(ctx context.Context) error {
	floorName := fmt.Sprintf("%d clients of the floor", clients)
	var f *floor
	var open [sessions]*v1alpha1.ToolSession
	var t *cluster.Tracker
	call := func(ctx context.Context, client int, name string) error {
		_, err := t.Run(ctx, cluster.CallOf(open[client%sessions], name))
		return err
	}
	return p.inTurns(ctx, &measure.Scenario{
		Name: floorName, Calls: clients * callsPerClient,
		Prepare: func(ctx context.Context) (err error) {
			f, err = p.newFloor(ctx)
			return err
		},
		Operate: func(ctx context.Context, n int) error {
			return eachClient(ctx, n, callsPerClient, func(ctx context.Context, _ int, name string) error { return f.run(ctx, name) })
		},
		Clear: func(ctx context.Context) error {
			if err := f.clear(ctx); err != nil {
				return err
			}
			return measure.Pause(ctx, settle)
		},
	}, &measure.Scenario{
		Name: fmt.Sprintf("%d clients of %d sessions", clients, sessions), Against: []string{floorName}, Calls: clients * callsPerClient,
		Prepare: func(ctx context.Context) error {
			r, err := p.newCallRoom(ctx, "sessions", v1alpha1.ExecutionPolicySpec{})
			if err != nil {
				return err
			}
			if t, err = p.track(ctx, r.namespace, &v1alpha1.ToolCallList{}, cluster.CallDone); err != nil {
				return err
			}
			err = cluster.Spread(ctx, sessions, sessions, func(ctx context.Context, i int) error {
				open[i] = cluster.NewSession(r.namespace, fmt.Sprintf("s%02d", i), sessionClients)
				return cluster.Open(ctx, p.client, open[i])
			})
			if err != nil {
				return err
			}
			// From then on the operator deletes finished calls as fast as others end.
			return eachClient(ctx, -1, keptCalls/sessionClients+1, call)
		},
		Operate: func(ctx context.Context, n int) error { return eachClient(ctx, n, callsPerClient, call) },
		// What is deleted then is not the floor's.
		Clear: func(ctx context.Context) error { return measure.Pause(ctx, settle) },
	})
}

// eachClient has clients at the same time, each of which has so many calls run, one after the other.
func eachClient(ctx context.Context, turn, calls int, run func(ctx context.Context, client int, name string) error) error {
	return cluster.Spread(ctx, clients, clients, func(ctx context.Context, client int) error {
		for i := range calls {
			if err := run(ctx, client, fmt.Sprintf("turn-%d-%02d-%06d", turn+1, client, i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// measureResumes measures calls that wake a suspended session, in turns with cold calls.
func (p *part) measureResumes(ctx context.Context) error {
	var r *room
	var s *speaker
	return p.inTurns(ctx, p.scenario(coldCall, 1), &measure.Scenario{
		Name: "call that wakes a suspended session with a claim", Against: []string{coldCall.title},
		Prepare: func(ctx context.Context) (err error) {
			if r, err = p.newCallRoom(ctx, "suspended", v1alpha1.ExecutionPolicySpec{}); err != nil {
				return err
			}
			s = &speaker{session: suspended(cluster.NewSession(r.namespace, "kept", 1))}
			if err := cluster.Open(ctx, p.client, s.session); err != nil {
				return err
			}
			if s.tracker, err = p.track(ctx, r.namespace, &v1alpha1.ToolCallList{}, cluster.CallDone); err != nil {
				return err
			}
			return p.awaitSuspended(ctx, r, s.session)
		},
		Operate: func(ctx context.Context, n int) error { return s.run(ctx, fmt.Sprintf("call-%06d", n), nil) },
		Clear:   func(ctx context.Context) error { return p.awaitSuspended(ctx, r, s.session) },
	})
}

// suspended has a session suspended as soon as it is idle.
func suspended(session *v1alpha1.ToolSession) *v1alpha1.ToolSession {
	session.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: resource.MustParse("64Mi")}
	session.Spec.IdleTimeoutSeconds = ptr.To(int32(1))
	return session
}

// awaitSuspended waits until a session has no pod.
func (p *part) awaitSuspended(ctx context.Context, r *room, session *v1alpha1.ToolSession) error {
	now := &v1alpha1.ToolSession{}
	err := cluster.Eventually(ctx, "the session to be suspended and its pod to be gone", func(ctx context.Context) (bool, error) {
		if err := p.client.Get(ctx, client.ObjectKeyFromObject(session), now); err != nil {
			return false, err
		}
		if now.Status.Phase != v1alpha1.SessionSuspended || now.Status.Job != "" {
			return false, nil
		}
		return r.idle(ctx)
	})
	if err != nil {
		return fmt.Errorf("session %s is %s, %s, with Job %q: %w", now.Name, now.Status.Phase, now.Status.Reason, now.Status.Job, err)
	}
	return nil
}
