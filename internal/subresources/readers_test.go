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
	enter := func(user string) error {
		l, err := r.enter(user)
		if err == nil {
			leave = append(leave, l)
		}
		return err
	}
	for range maxReadersPerUser {
		if err := enter("greedy"); err != nil {
			t.Fatal(err)
		}
	}
	err := enter("greedy")
	if seconds, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !retry || seconds != retryAfterSeconds {
		t.Errorf("one more of the same user: %v", err)
	}
	for i := len(leave); i < maxReaders; i++ {
		if err := enter(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter("late"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more of all: %v", err)
	}
	for _, l := range leave {
		l()
	}
	if r.total != 0 || len(r.byUser) != 0 {
		t.Errorf("when all have left: %d, %v", r.total, r.byUser)
	}
	if err := enter("greedy"); err != nil {
		t.Error(err)
	}
}
