// Package client reads the output of calls through the aggregated API subresources.toolcall.dev.
//
// Input is a connection with the reader's credentials, and which stream or artifact is wanted from which offset on. Copy passes
// the bytes on as they come.
//
// Invariants: no byte is lost, doubled or reordered, whatever breaks: a request that ends early is followed by one that begins at
// the next byte, of the same call by its UID; a part that wasn't kept is reported where it belongs; what was read whole is compared
// with the hash that the API says, and a difference is an error. Memory doesn't grow with the stream.
//
// The package must not print, and must not decide who may read: the API does.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

const (
	group   = "subresources.toolcall.dev"
	version = "v1alpha1"
)

// Headers of the API, as internal/subresources defines them. This package is part of programs that serve nothing.
const (
	headerUID      = "Toolcall-Uid"
	headerOffset   = "Toolcall-Offset"
	headerBytes    = "Toolcall-Bytes"
	headerComplete = "Toolcall-Complete"
	headerSHA256   = "Toolcall-Sha256"
	// causeNextOffset is the type of the cause that says where the stream goes on behind a part that wasn't kept.
	causeNextOffset = metav1.CauseType("NextOffset")
)

// maxError bounds an answer that is an error.
const maxError = 64 << 10

// Client sends requests to the aggregated API.
type Client struct {
	http *http.Client
	base *url.URL
}

// New returns a client with the credentials of a connection. It sends no request.
func New(conf *rest.Config) (*Client, error) {
	transport, err := rest.HTTPClientFor(conf)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return NewForHTTPClient(conf, transport)
}

// NewForHTTPClient shares the connections of an HTTP client that was made for the same connection.
func NewForHTTPClient(conf *rest.Config, transport *http.Client) (*Client, error) {
	host, _, err := rest.DefaultServerUrlFor(conf)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	return &Client{http: transport, base: host.JoinPath("apis", group, version, "namespaces")}, nil
}

// Request is one request below a namespace.
type Request struct {
	Method string
	// Namespace, Resource, Name and Subresource make the path: toolcalls, NAME, log.
	Namespace, Resource, Name, Subresource string
	Query                                  url.Values
	Header                                 http.Header
	Body                                   io.Reader
	// Length is that of the body; -1 if it isn't known.
	Length int64
}

// Do sends a request. An answer that is an error is returned as one: a *StatusError of Kubernetes. The caller closes the body.
func (c *Client) Do(ctx context.Context, r *Request) (*http.Response, error) {
	where := c.base.JoinPath(url.PathEscape(r.Namespace), r.Resource, url.PathEscape(r.Name), r.Subresource)
	where.RawQuery = r.Query.Encode()
	request, err := http.NewRequestWithContext(ctx, r.Method, where.String(), r.Body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	for name, values := range r.Header {
		request.Header[name] = values
	}
	if r.Body != nil {
		request.ContentLength = r.Length
	}
	// The bytes are counted and hashed as they are.
	request.Header.Set("Accept-Encoding", "identity")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		defer response.Body.Close()
		return nil, errorOf(r, response)
	}
	return response, nil
}

// Error is an answer that is an error, with its headers.
type Error struct {
	*apierrors.StatusError
	Header http.Header
}

// Unwrap has errors.As find the error of Kubernetes.
func (e *Error) Unwrap() error { return e.StatusError }

// errorOf reads the Status that an answer is. What stands between client and API answers in other ways.
func errorOf(r *Request, response *http.Response) error {
	size := int64(maxError)
	if response.ContentLength > 0 {
		// The stream ends later where the server refused a body that wasn't all sent.
		size = min(size, response.ContentLength)
	}
	raw, _ := io.ReadAll(io.LimitReader(response.Body, size))
	status := &metav1.Status{}
	if err := json.Unmarshal(raw, status); err == nil && status.Kind == "Status" && status.Code != 0 {
		return &Error{&apierrors.StatusError{ErrStatus: *status}, response.Header}
	}
	resource := schema.GroupResource{Group: group, Resource: r.Resource + "/" + r.Subresource}
	wait, _ := retryAfter(response.Header)
	made := apierrors.NewGenericServerResponse(response.StatusCode, r.Method, resource, r.Name, string(raw), int(wait.Seconds()), true)
	return &Error{made, response.Header}
}

// maxRetryAfter bounds what a server can make a client wait.
const maxRetryAfter = 30 * time.Second

// retryAfter is what an answer says about when to ask again.
func retryAfter(h http.Header) (time.Duration, bool) {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0, false
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter), true
}
