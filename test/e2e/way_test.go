package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

// way is how the calls of a space come to their pods.
type way string

const (
	// wayCold starts a pod for each call, with the runner mounted into it.
	wayCold way = "cold"
	// wayImage starts a pod for each call from an image that has the runner.
	wayImage way = "image"
	// wayWarm has a pod wait for each call.
	wayWarm way = "warm"
	// waySession runs the calls of a space in a session for each environment and skill, many at a time.
	waySession way = "session"
)

// everyWay runs the test of a contract in every way.
func everyWay(t *testing.T, test func(*testing.T, way)) {
	inWays(t, test, wayCold, waySession, wayWarm, wayImage)
}

// coldFirst runs a test in the cold way, and in the full run also in the others that it works in.
func coldFirst(t *testing.T, test func(*testing.T, way), others ...way) {
	ways := []way{wayCold}
	if full.Run() {
		ways = append(ways, others...)
	}
	inWays(t, test, ways...)
}

// sessionFirst runs a test of many calls in a session, and in the full run also in the other ways.
func sessionFirst(t *testing.T, test func(*testing.T, way), others ...way) {
	ways := []way{waySession}
	if full.Run() {
		ways = append(ways, others...)
	}
	inWays(t, test, ways...)
}

func inWays(t *testing.T, test func(*testing.T, way), ways ...way) {
	t.Parallel()
	for _, w := range ways {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

const (
	toolImageWithRunner = "toolcall.dev/tools-with-runner:dev"
	runnerPath          = "/usr/local/bin/toolcall-runner"
)

// applyTo has the calls of an environment go this way, unless the environment says itself which.
func (w way) applyTo(env *v1alpha1.ExecutionEnvironmentSpec) {
	switch {
	case w == wayImage && env.Image == toolImage:
		env.Image, env.RunnerPath = toolImageWithRunner, runnerPath
	case w == wayWarm && env.WarmPool == nil:
		env.WarmPool = &v1alpha1.WarmPool{Size: 2}
	}
}

// awaitPod waits, where calls go warm, until a pod waits for the next one or none can be had.
func (sp *space) awaitPod(t *testing.T, spec v1alpha1.ToolCallSpec) {
	t.Helper()
	if sp.way != wayWarm {
		return
	}
	name := defaultEnv
	if spec.EnvironmentRef != nil {
		name = spec.EnvironmentRef.Name
	}
	_ = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Duration(15*slowness())*time.Second, true, func(ctx context.Context) (bool, error) {
		env := &v1alpha1.ExecutionEnvironment{}
		err := sp.client.Get(ctx, client.ObjectKey{Namespace: sp.namespace, Name: name}, env)
		if err != nil || env.Spec.WarmPool == nil {
			return true, nil
		}
		failing := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionWarm)
		return env.Status.Warm != nil && env.Status.Warm.Ready > 0 || failing != nil && failing.Reason == v1alpha1.ReasonPodsFail, nil
	})
}

// enterSession has a call run in a session where calls go that way, in place of its environment and skill as they are now.
func (sp *space) enterSession(t *testing.T, spec v1alpha1.ToolCallSpec) v1alpha1.ToolCallSpec {
	t.Helper()
	if sp.way != waySession || spec.SessionRef != nil {
		return spec
	}
	session := &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{
		EnvironmentRef: spec.EnvironmentRef, SkillRef: spec.SkillRef, MaxConcurrentCalls: ptr.To(int32(16)), IdleTimeoutSeconds: ptr.To(int32(0)),
	}}
	env := &v1alpha1.ExecutionEnvironment{}
	env.Name = defaultEnv
	if spec.EnvironmentRef != nil {
		env.Name = spec.EnvironmentRef.Name
	}
	key := client.ObjectKey{Namespace: sp.namespace, Name: env.Name}
	err := sp.client.Get(t.Context(), key, env)
	if apierrors.IsNotFound(err) {
		return spec
	}
	must(t, err)
	parts := []string{"way", env.Name, strconv.FormatInt(env.Generation, 10)}
	if spec.EnvironmentRef == nil {
		parts = append(parts, "default")
	}
	if spec.SkillRef != nil {
		parts = append(parts, spec.SkillRef.Name)
	}
	session.Namespace, session.Name = sp.namespace, strings.Join(parts, "-")
	if err := sp.client.Create(t.Context(), session); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	spec.SessionRef, spec.EnvironmentRef, spec.SkillRef = &v1alpha1.SessionReference{Name: session.Name}, nil, nil
	return spec
}

// taken counts the calls that ended, by the way of their space and the path that their status names.
var taken sync.Map

type takenKey struct {
	way  way
	path v1alpha1.Path
}

// awaitFinished waits for the end of the call, and notes which path it took.
func (sp *space) awaitFinished(t *testing.T, call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	t.Helper()
	done := sp.suite.awaitFinished(t, call)
	if timings := done.Status.Timings; timings != nil {
		count, _ := taken.LoadOrStore(takenKey{sp.way, timings.Path}, &atomic.Int32{})
		count.(*atomic.Int32).Add(1)
	}
	return done
}

func takenBy(w way, path v1alpha1.Path) int32 {
	if count, ok := taken.Load(takenKey{w, path}); ok {
		return count.(*atomic.Int32).Load()
	}
	return 0
}

// checkPaths fails when most calls of a way took another path than it asks for, and in a run of all tests when none took its path.
func checkPaths() error {
	var failed []error
	for w, path := range map[way]v1alpha1.Path{
		wayCold: v1alpha1.PathCold, wayImage: v1alpha1.PathCold, wayWarm: v1alpha1.PathWarm, waySession: v1alpha1.PathSession,
	} {
		asked, cold := takenBy(w, path), takenBy(w, v1alpha1.PathCold)
		fmt.Printf("way %s: %d calls took path %s, %d path %s\n", w, asked, path, cold, v1alpha1.PathCold)
		// A call goes cold where no pod waits, which is so when more calls come at once than pods wait, and where it has no
		// environment to have a session in.
		if asked < cold/2 || asked == 0 && isWholeRun() {
			failed = append(failed, fmt.Errorf("way %s: %d calls took path %s, and %d path %s", w, asked, path, cold, v1alpha1.PathCold))
		}
	}
	return errors.Join(failed...)
}
