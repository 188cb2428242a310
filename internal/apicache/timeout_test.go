package apicache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"toolcall.dev/operator/api/v1alpha1"
)

// hanging is an API server that answers nothing until the request is given up.
func hanging(t *testing.T) client.Client {
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	return interceptor.NewClient(stored(t, true), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return wait(ctx)
		},
		List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
			return wait(ctx)
		},
		Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
			return wait(ctx)
		},
		Update: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.UpdateOption) error {
			return wait(ctx)
		},
		Patch: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return wait(ctx)
		},
		Delete: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.DeleteOption) error {
			return wait(ctx)
		},
		SubResourcePatch: func(ctx context.Context, _ client.Client, _ string, _ client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			return wait(ctx)
		},
	})
}

func TestEachRequestIsGivenUpInTime(t *testing.T) {
	t.Parallel()
	const limit, ofStatus = 3 * time.Second, 2 * time.Second
	slow := hanging(t)
	c, reader := WithTimeout(slow, limit, ofStatus), ReaderWithTimeout(slow, limit)
	call, list := &v1alpha1.ToolCall{}, &v1alpha1.ToolCallList{}
	patch := client.MergeFrom(call)
	for name, request := range map[string]func(context.Context) error{
		"get":                 func(ctx context.Context) error { return c.Get(ctx, named("c"), call) },
		"list":                func(ctx context.Context) error { return c.List(ctx, list) },
		"create":              func(ctx context.Context) error { return c.Create(ctx, call) },
		"update":              func(ctx context.Context) error { return c.Update(ctx, call) },
		"patch":               func(ctx context.Context) error { return c.Patch(ctx, call, patch) },
		"delete":              func(ctx context.Context) error { return c.Delete(ctx, call) },
		"patch of a status":   func(ctx context.Context) error { return c.Status().Patch(ctx, call, patch) },
		"get past the cache":  func(ctx context.Context) error { return reader.Get(ctx, named("c"), call) },
		"list past the cache": func(ctx context.Context) error { return reader.List(ctx, list) },
	} {
		synctest.Test(t, func(t *testing.T) {
			began, limit := time.Now(), limit
			if name == "patch of a status" {
				limit = ofStatus
			}
			err := request(t.Context())
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != limit {
				t.Errorf("%s: after %s: %v", name, took, err)
			}
			// Whoever asks may give up before.
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began = time.Now()
			if err := request(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%s, given up after a second: after %s: %v", name, time.Since(began), err)
			}
		})
	}
}

func TestARequestThatIsAnsweredIsNotTouched(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := WithTimeout(stored(t, true), time.Minute, time.Minute)
	call := callOf(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "make"}})
	call.ResourceVersion = ""
	if err := c.Create(ctx, call); err != nil {
		t.Fatal(err)
	}
	got := &v1alpha1.ToolCall{}
	if err := ReaderWithTimeout(c, time.Minute).Get(ctx, named("call"), got); err != nil || got.Spec.Shell.Command != "make" {
		t.Errorf("got %+v, %v", got, err)
	}
}
