package subresources

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestReadersAreBounded(t *testing.T) {
	t.Parallel()
	r := newReaders()
	var leave []func()
	enter := func(user, namespace string) error {
		l, err := r.enter(user, namespace)
		if err == nil {
			leave = append(leave, l)
		}
		return err
	}
	for range maxReadersPerUser {
		if err := enter("greedy", "a"); err != nil {
			t.Fatal(err)
		}
	}
	err := enter("greedy", "a")
	if seconds, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !retry || seconds != retryAfterSeconds {
		t.Errorf("one more of the same user: %v", err)
	}
	for i := len(leave); i < maxReadersPerNamespace; i++ {
		if err := enter(fmt.Sprint(i), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter("late", "a"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more of the same namespace: %v", err)
	}
	for i := len(leave); i < maxReaders; i++ {
		if err := enter(fmt.Sprint(i), fmt.Sprint(i%5)); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter("late", "b"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more of all: %v", err)
	}
	for _, l := range leave {
		l()
	}
	if r.total != 0 || len(r.byUser) != 0 || len(r.byNamespace) != 0 {
		t.Errorf("when all have left: %d, %v, %v", r.total, r.byUser, r.byNamespace)
	}
	if err := enter("greedy", "a"); err != nil {
		t.Error(err)
	}
}
