package apicache

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func within(ctx context.Context, timeout time.Duration, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return request(ctx)
}

// ReaderWithTimeout bounds each request of a reader.
func ReaderWithTimeout(r client.Reader, timeout time.Duration) client.Reader {
	return &boundedReader{r, timeout}
}

type boundedReader struct {
	client.Reader
	timeout time.Duration
}

func (b *boundedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return within(ctx, b.timeout, func(ctx context.Context) error { return b.Reader.Get(ctx, key, o, opts...) })
}

func (b *boundedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return within(ctx, b.timeout, func(ctx context.Context) error { return b.Reader.List(ctx, list, opts...) })
}

// WithTimeout bounds each request of a client. A webhook that answers slowly then costs its caller no more than that. Writes of
// statuses have a bound of their own.
func WithTimeout(c client.Client, timeout, ofStatus time.Duration) client.Client {
	return &bounded{Client: c, timeout: timeout, ofStatus: ofStatus}
}

type bounded struct {
	client.Client
	timeout, ofStatus time.Duration
}

func (b *bounded) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return within(ctx, b.timeout, func(ctx context.Context) error { return b.Client.Get(ctx, key, o, opts...) })
}

func (b *bounded) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return within(ctx, b.timeout, func(ctx context.Context) error { return b.Client.List(ctx, list, opts...) })
}

func (b *bounded) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return within(ctx, b.timeout, func(ctx context.Context) error { return b.Client.Create(ctx, o, opts...) })
}

func (b *bounded) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return within(ctx, b.timeout, func(ctx context.Context) error { return b.Client.Update(ctx, o, opts...) })
}

func (b *bounded) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return within(ctx, b.timeout, func(ctx context.Context) error { return b.Client.Patch(ctx, o, p, opts...) })
}

func (b *bounded) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return within(ctx, b.timeout, func(ctx context.Context) error { return b.Client.Delete(ctx, o, opts...) })
}

// Status bounds the writes of statuses.
func (b *bounded) Status() client.SubResourceWriter {
	return &boundedStatus{b.Client.Status(), b.ofStatus}
}

type boundedStatus struct {
	client.SubResourceWriter
	timeout time.Duration
}

func (b *boundedStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return within(ctx, b.timeout, func(ctx context.Context) error { return b.SubResourceWriter.Patch(ctx, o, p, opts...) })
}
