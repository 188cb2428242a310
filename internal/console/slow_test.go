package console

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"
)

// pipes is a listener whose connections have no buffers: what a client doesn't read blocks the server at once.
type pipes struct {
	accepted chan net.Conn
	closed   context.Context
	close    context.CancelFunc
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects over TLS. With TLS 1.3 the server would write after the handshake.
func (p *pipes) dial(t *testing.T, protocol string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close() })
	select {
	case p.accepted <- server:
	case <-time.After(testTimeout):
		t.Fatal("the connection isn't accepted")
	}
	conn := tls.Client(client, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}, MaxVersion: tls.VersionTLS12})
	must(t, conn.HandshakeContext(t.Context()))
	return conn
}

// servePipes serves a console whose API server is a function.
func servePipes(t *testing.T, o *Options, upstream http.HandlerFunc) *pipes {
	t.Helper()
	api := newUpstream(t, upstream)
	ctx, stop := context.WithCancel(context.Background())
	handler, err := NewHandler(ctx, o, &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, slog.New(slog.DiscardHandler))
	must(t, err)
	p := &pipes{accepted: make(chan net.Conn), closed: ctx, close: stop}
	o.CertFile, o.KeyFile = writeCertificate(t)
	var running sync.WaitGroup
	server := o.newServer()
	server.Handler, server.ErrorLog = handler, slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	listener, err := o.Secure(ctx, server, p, func(watch func() error) { running.Go(func() { _ = watch() }) })
	must(t, err)
	running.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { stop(); _ = server.Close(); running.Wait() })
	return p
}

// follow asks for a call's output over HTTP/1.1.
func follow(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "GET %s?follow=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer abc\r\n\r\n", logOf)
	must(t, err)
}

// follow2 does over HTTP/2. It takes what the server writes until it returns.
func follow2(t *testing.T, conn net.Conn, arrived <-chan struct{}) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = io.Copy(io.Discard, conn) }()
	_, err := io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	framer := http2.NewFramer(conn, nil)
	must(t, framer.WriteSettings())
	block := &headerBlock{}
	encoder := hpack.NewEncoder(block)
	for _, field := range [][2]string{
		{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", logOf + "?follow=true"}, {"authorization", "Bearer abc"},
	} {
		must(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	must(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: *block, EndStream: true, EndHeaders: true}))
	waitFor(t, arrived, "the request doesn't arrive")
	must(t, conn.SetReadDeadline(time.Now()))
	waitFor(t, ended, "the client goes on reading")
}

func waitFor(t *testing.T, done <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatal(otherwise)
	}
}

type headerBlock []byte

func (b *headerBlock) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

// A client that reads nothing, not even the headers of an answer, doesn't keep its requests' slots.
func TestAClientThatDoesntRead(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			arrived, answer, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
			o := testOptions()
			o.MaxRequestsPerToken, o.limits = 1, timeouts{headers: testTimeout, write: time.Second}
			console := servePipes(t, o, func(w http.ResponseWriter, r *http.Request) {
				close(arrived)
				select {
				case <-answer:
				case <-r.Context().Done():
				}
				w.Header().Set("Content-Type", "application/octet-stream")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(ended)
			})
			conn := console.dial(t, protocol)
			if protocol == "h2" {
				follow2(t, conn, arrived)
			} else {
				follow(t, conn)
				waitFor(t, arrived, "the request doesn't arrive")
			}
			close(answer)
			waitFor(t, ended, "the request goes on")
		})
	}
}

// blocked is the answer to a client that takes nothing until it is let go.
type blocked struct {
	http.ResponseWriter
	started chan<- struct{}
	letGo   <-chan struct{}
}

func (b blocked) Write(p []byte) (int, error) {
	b.started <- struct{}{}
	<-b.letGo
	return len(p), nil
}

// Requests that take no slot are bounded too: each has memory while its client takes nothing.
func TestRequestsWithoutATokenAreBounded(t *testing.T) {
	t.Parallel()
	o := testOptions()
	handler, err := NewHandler(t.Context(), o, &rest.Config{Host: "https://api.test"}, slog.New(slog.DiscardHandler))
	must(t, err)
	started, letGo := make(chan struct{}), make(chan struct{})
	// serve says whether a request was served.
	serve := func(w http.ResponseWriter, path string) (served bool) {
		defer func() { served = recover() == nil }()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Host = "localhost"
		handler.ServeHTTP(w, r)
		return true
	}
	var running sync.WaitGroup
	for i := range o.MaxRequests + otherRequests {
		running.Go(func() { serve(blocked{httptest.NewRecorder(), started, letGo}, []string{"/", "/none", calls}[i%3]) })
		<-started
	}
	if serve(httptest.NewRecorder(), "/") {
		t.Error("one more is served")
	}
	close(letGo)
	running.Wait()
	if !serve(httptest.NewRecorder(), "/") {
		t.Error("requests that ended make no room")
	}
}
