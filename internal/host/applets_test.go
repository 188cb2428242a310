package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

func TestAppletsAreThoseThatTheLastCallOfEachKindFound(t *testing.T) {
	t.Parallel()
	env, other := types.NamespacedName{Name: "env"}, types.NamespacedName{Name: "other"}
	n := NewNodes()
	under := func(policy, own string) *rules.Rules {
		return &rules.Rules{Policy: policy, Programs: &rules.Programs{Own: own}}
	}
	expect := func(when string, name types.NamespacedName, held *rules.Rules, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, n.Applets(name, held).Unheld); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	expect("at first", env, under("p", ""))
	n.SetApplets(env, under("p", "sh"), Applets{Unheld: []string{"/bin/toybox", "/bin/busybox"}})
	n.SetApplets(env, under("p", ""), Applets{[]string{"/bin/busybox"}, []string{"/bin/coreutils"}})
	expect("after two calls", env, under("p", "python3"), "/bin/busybox", "/bin/toybox")
	expect("of another environment", other, under("p", ""))
	expect("under another policy", env, under("q", ""))
	expect("without a list", env, &rules.Rules{Policy: "p"})
	n.SetApplets(env, under("p", "sh"), Applets{})
	expect("after a shell call that could start none", env, under("p", ""), "/bin/busybox")
	n.SetApplets(env, under("p", ""), Applets{NamesOnly: []string{"/bin/toybox"}})
	expect("where names are looked at", env, under("p", ""))
	if diff := cmp.Diff([]string{"/bin/toybox"}, n.Applets(env, under("p", "sh")).NamesOnly); diff != "" {
		t.Errorf("names only: %s", diff)
	}
	n.Forget(env)
	expect("when it has changed", env, under("p", ""))
}
