package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/output"
)

// Records reads what the API server has of what a runner says. A token and the UID of a call or a session alone prove
// nothing: they would open connections long after the Job, the call and the session are gone.
type Records struct {
	// Cached may be behind. Live asks the API server.
	Cached, Live client.Reader
}

// Bounds of the questions to the API server that hellos cause. They are few: the cache has what is there.
const (
	liveTimeout    = 2 * time.Second
	liveConcurrent = 4
	livePerSecond  = 100
)

var (
	errJobGone  = finalError{errors.New("the Job that the hello names doesn't exist")}
	errNotBound = finalError{errors.New("the call doesn't exist, or has another runner")}
	errNoServer = finalError{errors.New("the session doesn't exist, or has another runner")}
	errUnknown  = errors.New("the API server doesn't answer in time")
)

// recordKeeper asks Records within bounds. Namespaces take turns.
type recordKeeper struct {
	*Records
	slots *fair.Turns[string]
	rate  *rate.Limiter
}

func newRecordKeeper(r *Records) *recordKeeper {
	return &recordKeeper{Records: r, slots: fair.NewTurns[string](liveConcurrent, liveConcurrent), rate: rate.NewLimiter(livePerSecond, livePerSecond)}
}

// check says why a runner isn't what it says that it is: errUnknown when nobody can tell now. turn is whose turn to ask the API server
// it uses.
func (k *recordKeeper) check(ctx context.Context, turn string, s *Runner) error {
	if k.isTrue(ctx, k.Cached, s) == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	release, err := k.slots.Acquire(ctx, turn, 1)
	if err != nil {
		return errUnknown
	}
	defer release()
	// At most as many wait here as there are slots, and none gives up: what is reserved and canceled would delay the next.
	pause(context.WithoutCancel(ctx), k.rate.Reserve().Delay())
	return k.isTrue(ctx, k.Live, s)
}

// isTrue compares what a runner says that it is, or was made since, with what a reader has. A runner that has begun is the one whose key
// its owner records, whatever became of its Job; one that waits belongs to a Job that exists.
func (k *recordKeeper) isTrue(ctx context.Context, reader client.Reader, s *Runner) error {
	named := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: s.hello.Namespace, Name: name}
	}
	owner, _ := s.Owner()
	switch {
	case owner.IsSession():
		session := &v1alpha1.ToolSession{}
		found, err := get(ctx, reader, named(owner.Name), session)
		return checkRecord(s.keyHash, found && string(session.UID) == owner.UID, session.Status.Runner, err, errNoServer)
	case owner.IsCall():
		call := &v1alpha1.ToolCall{}
		found, err := get(ctx, reader, named(owner.Name), call)
		return checkRecord(s.keyHash, found && string(call.UID) == owner.UID, call.Status.Runner, err, errNotBound)
	}
	job := &batchv1.Job{}
	found, err := get(ctx, reader, named(s.hello.Job), job)
	if err == nil && (!found || string(job.UID) != s.hello.JobUID) {
		return errJobGone
	}
	return err
}

// checkRecord returns an error that was met, or else otherwise where the owner wasn't found, or doesn't record the runner with a key.
func checkRecord(keyHash string, found bool, recorded *v1alpha1.RunnerBinding, err, otherwise error) error {
	if err == nil && (!found || recorded == nil || recorded.KeyHash != keyHash) {
		return otherwise
	}
	return err
}

// RunnerOf is the hash of the key of the runner that a call, or its session, is recorded to have; empty when there is none. It
// is for RunnerSource. In a session that has another runner by now, that one doesn't know the call.
func (r *Records) RunnerOf(ctx context.Context, key output.Key) (keyHash string, err error) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	call, err := r.call(ctx, key)
	switch {
	case err != nil || call == nil:
		return "", err
	case call.Status.Runner != nil:
		return call.Status.Runner.KeyHash, nil
	case call.Spec.SessionRef == nil:
		return "", nil
	}
	session := &v1alpha1.ToolSession{}
	found, err := get(ctx, r.Cached, types.NamespacedName{Namespace: key.Namespace, Name: call.Spec.SessionRef.Name}, session)
	if err != nil || !found || session.Status.Runner == nil || !mayHave(session, call) {
		return "", err
	}
	return session.Status.Runner.KeyHash, nil
}

// call is the call that a key names; nil when it is gone. Those that have ended aren't in the cache: a session's runner has
// their output nevertheless.
func (r *Records) call(ctx context.Context, key output.Key) (*v1alpha1.ToolCall, error) {
	for _, reader := range []client.Reader{r.Cached, r.Live} {
		call := &v1alpha1.ToolCall{}
		found, err := get(ctx, reader, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, call)
		if err != nil {
			return nil, err
		}
		if found && call.UID == key.UID {
			return call, nil
		}
	}
	return nil, nil
}

// mayHave says that the call isn't one of an earlier session of the same name, whose output this one's runner could make up.
func mayHave(session *v1alpha1.ToolSession, call *v1alpha1.ToolCall) bool {
	if uid := call.Spec.SessionRef.UID; uid != "" {
		return uid == string(session.UID)
	}
	return !session.CreationTimestamp.After(call.CreationTimestamp.Time)
}

func get(ctx context.Context, reader client.Reader, key types.NamespacedName, into client.Object) (found bool, err error) {
	// What the operator is about to write of it isn't waited for: a runner waits.
	switch err := reader.Get(ctx, key, into, client.DisableReadYourWritesConsistency); {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	default:
		return false, fmt.Errorf("%w: %w", errUnknown, err)
	}
}
