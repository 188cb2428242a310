package store

import (
	"context"
	"fmt"

	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"
)

// openGoogle finds credentials as Google's tools do: the file that GOOGLE_APPLICATION_CREDENTIALS names, or the workload's
// identity.
func (l *Location) openGoogle(ctx context.Context) (*blob.Bucket, error) {
	credentials, err := gcp.DefaultCredentials(ctx)
	if err != nil {
		return nil, fmt.Errorf("find Google's credentials: %w", err)
	}
	client, err := gcp.NewHTTPClient(gcp.DefaultTransport(), gcp.CredentialsTokenSource(credentials))
	if err != nil {
		return nil, err
	}
	return gcsblob.OpenBucket(ctx, client, l.bucket, nil)
}
