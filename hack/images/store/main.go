// Command store is an S3 server with one bucket, which keeps objects as files in a folder. It is what the operator keeps
// output in where no other object storage is given. It has one account, whose keys are in the environment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

type options struct {
	address string
	dir     string
	bucket  string
	// access and secret are the account's keys.
	access, secret string
}

func main() {
	var o options
	flag.StringVar(&o.address, "address", ":9000", "address to serve S3, and /healthz, on")
	flag.StringVar(&o.dir, "dir", "", "folder to keep buckets in, each as a folder of its name")
	flag.StringVar(&o.bucket, "bucket", "", "name of the bucket; made when it isn't there")
	flag.Parse()
	o.access, o.secret = os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "store:", err)
		os.Exit(1)
	}
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	if o.dir == "" {
		return errors.New("give the flag -dir")
	}
	if !bucketName.MatchString(o.bucket) {
		return fmt.Errorf("the flag -bucket is %q: give 3 to 63 lower-case letters, digits and -", o.bucket)
	}
	if o.access == "" || o.secret == "" {
		return errors.New("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the keys of the only account")
	}
	if err := os.MkdirAll(filepath.Join(o.dir, o.bucket), 0o700); err != nil {
		return fmt.Errorf("make the bucket's folder: %w", err)
	}
	files := posix.PosixOpts{Concurrency: maxRequests}
	files.SetNewDirPerm(0o700)
	files.SetNewFilePerm(0o600)
	// Without metadata any file system will do. The operator needs none: it checks what it reads by its own hashes.
	backend, err := posix.New(o.dir, meta.NoMeta{}, files)
	if err != nil {
		return fmt.Errorf("open %s: %w", o.dir, err)
	}
	err = embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess: o.access, RootUserSecret: o.secret,
		Ports:          []string{o.address},
		MaxConnections: maxConnections, MaxRequests: maxRequests, MultipartMaxParts: 10000,
		KeepAlive: true, DisableACLs: true, Quiet: true, HealthPath: "/healthz",
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// What is served at once is bounded, so that the memory is.
const (
	maxConnections = 1024
	maxRequests    = 128
)
