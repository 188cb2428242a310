package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

// Scripts about a limit that the kernel has for each user.
const (
	takeInstances = `python3 -c '
import ctypes, time
libc = ctypes.CDLL(None)
while libc.inotify_init1(0) >= 0: pass
time.sleep(300)'`
	askForInstance   = `python3 -c 'import ctypes; print("one" if ctypes.CDLL(None).inotify_init1(0) >= 0 else "none")'`
	awaitNoInstances = `until test "$(` + askForInstance + `)" = none; do sleep 0.1; done; echo none`
)

// One call takes all inotify instances of its user. Others of that user have none left, as those of namespaces without users of
// their own; calls of another user don't notice.
func TestNamespacesDontShareTheKernelsLimits(t *testing.T) {
	full.Only(t, "it is about the cluster's user namespaces")
	t.Parallel()
	sp := newBareSpace(t)
	for name, user := range map[string]int64{"tenant": 1_123_456_781, "same-user": 1_123_456_781, "other-user": 1_123_456_782} {
		sp.newEnvironment(t, name, func(e *v1alpha1.ExecutionEnvironment) {
			e.Spec.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(user)}
		})
	}
	attack := sp.create(t, within(300, in("tenant", shell(takeInstances))))
	expect(t, sp.run(t, in("same-user", shell(awaitNoInstances))), succeeded("none\n"))
	expect(t, sp.run(t, in("other-user", shell(askForInstance))), succeeded("one\n"))
	sp.cancel(t, attack)
	sp.awaitPhase(t, attack, v1alpha1.PhaseCancelled)
}
