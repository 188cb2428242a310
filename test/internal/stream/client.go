package stream

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/internal/output"
)

// Client sends requests with the rights of a kubeconfig. It takes headers and leaves them to the caller, which client-go's own
// requests don't.
type Client struct {
	http *http.Client
	base *url.URL
}

// NewClient sends requests to the API server of config. Clients of the same config share their connections.
func NewClient(config *rest.Config) (*Client, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return &Client{http: c, base: base}, nil
}

// Group is the path of the aggregated API.
const Group = "/apis/subresources.toolcall.dev/v1alpha1"

// Request is for a path below a namespace of the aggregated API.
type Request struct {
	Method, Namespace, Path string
	Query                   url.Values
	Header                  http.Header
	Body                    io.Reader
}

// Do sends a request. The caller closes the answer's body.
func (c *Client) Do(ctx context.Context, r Request) (*http.Response, error) {
	at := *c.base
	at.Path, at.RawQuery = Group+"/namespaces/"+r.Namespace+"/"+r.Path, r.Query.Encode()
	request, err := http.NewRequestWithContext(ctx, r.Method, at.String(), r.Body)
	if err != nil {
		return nil, fmt.Errorf("make a request for %s: %w", r.Path, err)
	}
	if r.Header != nil {
		request.Header = r.Header
	}
	return c.http.Do(request)
}

// Log names a stream of a call.
type Log struct {
	Namespace, Name string
	// UID keeps a call of the same name that was made later from being read; empty for whichever there is.
	UID    types.UID
	Stream output.Stream
}

// Path is that of the log below its namespace.
func (l Log) Path() string { return "toolcalls/" + l.Name + "/log" }

// Get asks for a stream. The caller closes the answer's body.
func (c *Client) Get(ctx context.Context, log Log, query url.Values, headers ...string) (*http.Response, error) {
	all := url.Values{"stream": {string(log.Stream)}}
	if log.UID != "" {
		all.Set("uid", string(log.UID))
	}
	maps.Copy(all, query)
	header := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	return c.Do(ctx, Request{Method: http.MethodGet, Namespace: log.Namespace, Path: log.Path(), Query: all, Header: header})
}
