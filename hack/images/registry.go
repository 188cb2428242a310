package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// serve is a registry until it is interrupted. It keeps everything in memory, asks nobody who they are, and speaks
// plain HTTP, which clients accept on loopback addresses only. It prints the address once it listens there.
func serve(args []string) error {
	flags := flag.NewFlagSet("registry", flag.ContinueOnError)
	address := flags.String("listen", "", "the address and port; port 0 takes one that is free")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 0 || *address == "" {
		return errors.New("registry needs --listen, as in --listen 127.0.0.1:5000")
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{
		Handler:           registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
