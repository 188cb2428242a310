package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/aws/smithy-go"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"google.golang.org/api/googleapi"

	"toolcall.dev/operator/internal/output"
)

// put writes an object in one request.
func (s *Store) put(ctx context.Context, name string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	options := &blob.WriterOptions{ContentType: "application/octet-stream", MaxConcurrency: 1}
	if err := s.bucket.Upload(ctx, name, bytes.NewReader(data), options); err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	return nil
}

// get returns an object of at most limit bytes, or output.ErrNotFound.
func (s *Store) get(ctx context.Context, name string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	r, err := s.bucket.NewReader(ctx, name, nil)
	if isAbsent(err) {
		return nil, output.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("get %s from the output store: %w", name, err)
	}
	defer r.Close()
	if r.Size() > limit {
		return nil, &CorruptError{name, fmt.Sprintf("has %d bytes, more than %d", r.Size(), limit)}
	}
	data := bytes.NewBuffer(make([]byte, 0, max(r.Size(), 0)+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		return nil, fmt.Errorf("get %s from the output store: %w", name, err)
	}
	if int64(data.Len()) > limit {
		return nil, &CorruptError{name, fmt.Sprintf("has more than %d bytes", limit)}
	}
	return data.Bytes(), nil
}

// isAbsent says that a service told that an object isn't there. The library says NotFound for more than that: for a bucket that isn't
// there, for Google's 403, and for a name of Azure's that isn't resolved. Nobody may take those for output that was never kept.
func isAbsent(err error) bool {
	if gcerrors.Code(err) != gcerrors.NotFound {
		return false
	}
	var amazon smithy.APIError
	var google *googleapi.Error
	var azure *azcore.ResponseError
	switch {
	case errors.As(err, &amazon):
		return amazon.ErrorCode() == "NoSuchKey" || amazon.ErrorCode() == "NotFound"
	case errors.As(err, &google):
		return google.Code == http.StatusNotFound && !strings.HasPrefix(google.Message, "The specified bucket")
	case errors.As(err, &azure):
		return azure.ErrorCode == string(bloberror.BlobNotFound)
	default:
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrObjectNotExist)
	}
}

// remove deletes an object. One that isn't there is deleted.
func (s *Store) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	if err := s.bucket.Delete(ctx, name); err != nil && !isAbsent(err) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// readIndex returns the checked index of a stream, or output.ErrNotFound.
func (s *Store) readIndex(ctx context.Context, key output.Key) (*index, error) {
	prefix, err := streamPrefix(key)
	if err != nil {
		return nil, err
	}
	data, err := s.get(ctx, prefix+indexName, maxIndexBytes)
	if err != nil {
		return nil, err
	}
	i, err := decodeIndex(data, key)
	if err != nil {
		return nil, &CorruptError{prefix + indexName, err.Error()}
	}
	return i, nil
}

// readPart returns the checked bytes of a part.
func (s *Store) readPart(ctx context.Context, name string, p part) ([]byte, error) {
	data, err := s.get(ctx, name, p.Size)
	if errors.Is(err, output.ErrNotFound) {
		return nil, &CorruptError{name, "isn't there, and the index says it is"}
	}
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != p.Size {
		return nil, &CorruptError{name, fmt.Sprintf("has %d bytes instead of %d", len(data), p.Size)}
	}
	if hashOf(data) != p.SHA256 {
		return nil, &CorruptError{name, "doesn't have its sha256"}
	}
	return data, nil
}
