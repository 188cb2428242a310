package snapshot

import (
	"context"
	"errors"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestFewLargeInputsAreCheckedAtOnce(t *testing.T) {
	t.Parallel()
	r := New(Sources{})
	small, large := &v1alpha1.ToolCall{}, &v1alpha1.ToolCall{}
	large.Spec.Stdin = strings.Repeat("x", largeInput+1)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	var release func()
	for range cap(r.large) {
		var err error
		if release, err = r.AcquireLarge(context.Background(), large); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.AcquireLarge(cancelled, large); !errors.Is(err, context.Canceled) {
		t.Errorf("one more large input: %v", err)
	}
	if _, err := r.AcquireLarge(cancelled, small); err != nil {
		t.Errorf("a small input: %v", err)
	}
	release()
	if _, err := r.AcquireLarge(context.Background(), large); err != nil {
		t.Errorf("a large input after another was checked: %v", err)
	}
}
