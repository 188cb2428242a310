package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// way is how calls come to their pods in this run of the suite, from TOOLCALL_E2E_WAY: everything that works one
// way works the others.
var way = os.Getenv("TOOLCALL_E2E_WAY")

const (
	// wayCold starts a pod for each call, with the runner mounted into it. It is the way when none is given.
	wayCold = "cold"
	// wayImage starts a pod for each call from an image that has the runner.
	wayImage = "image"
	// wayWarm has a pod wait for each call.
	wayWarm = "warm"
	// waySession runs the calls of a test in a session for each environment and skill, many at a time.
	waySession = "session"
)

const (
	toolImageWithRunner = "toolcall.dev/tools-with-runner:dev"
	runnerPath          = "/usr/local/bin/toolcall-runner"
)

// goThe has calls in an environment go a way, unless the environment says itself which.
func goThe(way string, env *v1alpha1.ExecutionEnvironmentSpec) {
	switch {
	case way == wayImage && env.Image == toolImage:
		env.Image, env.RunnerPath = toolImageWithRunner, runnerPath
	case way == wayWarm && env.WarmPool == nil:
		env.WarmPool = &v1alpha1.WarmPool{Size: 2}
	}
}

// imageOf is the image of environments that don't say which.
func imageOf(way string) string {
	if way == wayImage {
		return toolImageWithRunner
	}
	return toolImage
}

// awaitPod waits, where calls go warm, until a pod waits for the next one or none can be had.
func (sp *space) awaitPod(t *testing.T, spec v1alpha1.ToolCallSpec) {
	t.Helper()
	if way != wayWarm {
		return
	}
	name := defaultEnv
	if spec.EnvironmentRef != nil {
		name = spec.EnvironmentRef.Name
	}
	_ = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 15*time.Second, true, func(ctx context.Context) (bool, error) {
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
	if way != waySession || spec.SessionRef != nil {
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

// once skips a test in which nothing depends on how calls come to their pods, except the first way.
func once(t *testing.T) {
	t.Helper()
	if way != "" && way != wayCold {
		t.Skip("nothing in it depends on how calls come to their pods: it runs in the cold way")
	}
}

// needsOwnPod skips a test of what calls have that get a pod of their own, where they run in sessions.
func needsOwnPod(t *testing.T) {
	t.Helper()
	if way == waySession {
		t.Skip("calls of sessions have no pod of their own")
	}
}

var ran = map[v1alpha1.Path]*atomic.Int32{v1alpha1.PathCold: {}, v1alpha1.PathWarm: {}, v1alpha1.PathSession: {}}

func notePath(call *v1alpha1.ToolCall) {
	if timings := call.Status.Timings; timings != nil && ran[timings.Path] != nil {
		ran[timings.Path].Add(1)
	}
}

// checkPaths says which way the calls went, and is not content when it wasn't the one that was asked for.
func checkPaths() error {
	cold, warm, inSession := ran[v1alpha1.PathCold].Load(), ran[v1alpha1.PathWarm].Load(), ran[v1alpha1.PathSession].Load()
	fmt.Printf("calls that found a waiting pod: %d of %d; calls in sessions: %d\n", warm, cold+warm, inSession)
	switch way {
	case "", wayCold, wayImage:
		return nil
	case wayWarm:
		if warm < cold {
			return fmt.Errorf("%d calls went cold and only %d warm", cold, warm)
		}
		return nil
	case waySession:
		if inSession < cold {
			return fmt.Errorf("%d calls went cold and only %d in sessions", cold, inSession)
		}
		return nil
	default:
		return fmt.Errorf("TOOLCALL_E2E_WAY=%q: say %s, %s, %s or %s", way, wayCold, wayImage, wayWarm, waySession)
	}
}
