package apicache

import (
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
)

func policyOf(name, uid string, generation int64, access v1alpha1.AccessMode) *v1alpha1.ExecutionPolicy {
	return &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Generation: generation},
		Spec:       v1alpha1.ExecutionPolicySpec{Access: access},
	}
}

func TestAPolicyIsCompiledOnceAGeneration(t *testing.T) {
	t.Parallel()
	var c Compiled
	first, err := c.Compile(policyOf("p", "u", 1, v1alpha1.AccessOpen))
	if err != nil || first.Access() != v1alpha1.AccessOpen {
		t.Fatalf("got %v", err)
	}
	// The second argument says whether what was compiled before serves again.
	for _, step := range []struct {
		name   string
		policy *v1alpha1.ExecutionPolicy
		want   v1alpha1.AccessMode
		same   bool
	}{
		{"the same generation", policyOf("p", "u", 1, v1alpha1.AccessOpen), v1alpha1.AccessOpen, true},
		{"another policy", policyOf("q", "u", 1, v1alpha1.AccessRBAC), v1alpha1.AccessRBAC, false},
		{"the first again", policyOf("p", "u", 1, v1alpha1.AccessOpen), v1alpha1.AccessOpen, true},
		{"the next generation", policyOf("p", "u", 2, v1alpha1.AccessRBAC), v1alpha1.AccessRBAC, false},
		{"another of that name", policyOf("p", "v", 2, v1alpha1.AccessOpen), v1alpha1.AccessOpen, false},
		{"an older generation, from a cache that is behind", policyOf("p", "u", 1, v1alpha1.AccessOpen), v1alpha1.AccessOpen, false},
	} {
		got, err := c.Compile(step.policy)
		if err != nil || got.Access() != step.want || (got == first) != step.same {
			t.Errorf("%s: access %s, the same: %t, %v", step.name, got.Access(), got == first, err)
		}
	}
}

func TestThatAPolicyDoesNotCompileIsRememberedToo(t *testing.T) {
	t.Parallel()
	var c Compiled
	_, first := c.Compile(policyOf("p", "u", 1, "Anybody"))
	_, second := c.Compile(policyOf("p", "u", 1, "Anybody"))
	if first == nil || second != first {
		t.Errorf("got %v, then %v", first, second)
	}
	if _, err := c.Compile(policyOf("p", "u", 2, v1alpha1.AccessOpen)); err != nil {
		t.Errorf("after the correction: %v", err)
	}
}

func TestTheDefaultsAreCompiledOnce(t *testing.T) {
	t.Parallel()
	var c Compiled
	first, err := c.Compile(nil)
	if err != nil || first.Access() != v1alpha1.AccessRBAC {
		t.Fatalf("got %v", err)
	}
	if again, err := c.Compile(nil); err != nil || again != first {
		t.Errorf("compiled again: %v", err)
	}
	c.Forget("p")
	if n := kept(&c); n != 1 {
		t.Errorf("%d policies are kept", n)
	}
}

func TestADeletedPolicyIsForgotten(t *testing.T) {
	t.Parallel()
	var c Compiled
	c.Forget("none")
	for i := range 100 {
		name := fmt.Sprint("p", i)
		before, err := c.Compile(policyOf(name, "u", 1, v1alpha1.AccessOpen))
		if err != nil {
			t.Fatal(err)
		}
		c.Forget(name)
		if after, err := c.Compile(policyOf(name, "u", 1, v1alpha1.AccessOpen)); err != nil || after == before {
			t.Errorf("%s is still there: %v", name, err)
		}
		c.Forget(name)
	}
	if n := kept(&c); n != 0 {
		t.Errorf("%d policies are left", n)
	}
}

func kept(c *Compiled) (n int) {
	c.byName.Range(func(any, any) bool { n++; return true })
	return n
}

func TestPoliciesAreCompiledByManyAtOnce(t *testing.T) {
	t.Parallel()
	var c Compiled
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 50 {
				access := []v1alpha1.AccessMode{v1alpha1.AccessOpen, v1alpha1.AccessRBAC}[i%2]
				got, err := c.Compile(policyOf("p", "u", int64(i), access))
				if err != nil || got.Access() != access {
					t.Errorf("generation %d: %v, %v", i, got.Access(), err)
				}
				if _, err := c.Compile(nil); err != nil {
					t.Error(err)
				}
				if worker == 0 {
					c.Forget("p")
				}
			}
		})
	}
	all.Wait()
}
