package e2e

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
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

var ran = map[v1alpha1.Path]*atomic.Int32{v1alpha1.PathCold: {}, v1alpha1.PathWarm: {}}

func notePath(call *v1alpha1.ToolCall) {
	if timings := call.Status.Timings; timings != nil && ran[timings.Path] != nil {
		ran[timings.Path].Add(1)
	}
}

// checkPaths says which way the calls went, and is not content when it wasn't the one that was asked for.
func checkPaths() error {
	cold, warm := ran[v1alpha1.PathCold].Load(), ran[v1alpha1.PathWarm].Load()
	fmt.Printf("calls that found a waiting pod: %d of %d\n", warm, cold+warm)
	switch way {
	case "", wayCold, wayImage:
		return nil
	case wayWarm:
		if warm < cold {
			return fmt.Errorf("%d calls went cold and only %d warm", cold, warm)
		}
		return nil
	default:
		return fmt.Errorf("TOOLCALL_E2E_WAY=%q: say %s, %s or %s", way, wayCold, wayImage, wayWarm)
	}
}
