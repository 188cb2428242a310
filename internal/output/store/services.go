package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/s3blob"
)

// open connects to the location's service, which it asks nothing.
func (l *Location) open(ctx context.Context) (*blob.Bucket, error) {
	var b *blob.Bucket
	var err error
	switch l.scheme {
	case "s3":
		b, err = l.openS3(ctx)
	case "gs":
		b, err = l.openGoogle(ctx)
	case "azblob":
		b, err = l.openAzure()
	case "file":
		b, err = l.openFolder()
	default:
		err = errors.New("no location is given")
	}
	if err != nil {
		return nil, err
	}
	if l.prefix != "" {
		b = blob.PrefixedBucket(b, l.prefix)
	}
	return b, nil
}

// openS3 finds credentials as Amazon's tools do: environment variables, a web identity, the container's or the machine's role.
func (l *Location) openS3(ctx context.Context) (*blob.Bucket, error) {
	options := []func(*config.LoadOptions) error{
		// What is stored is checked by its own hash. Other servers than Amazon's may not know the checksums.
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
	}
	if region := l.parameters["region"]; region != "" {
		options = append(options, config.WithRegion(region))
	}
	endpoint := l.parameters["endpoint"]
	// Few servers but Amazon's have a name for each bucket.
	pathStyle, err := strconv.ParseBool(cmp.Or(l.parameters["use_path_style"], strconv.FormatBool(endpoint != "")))
	if err != nil {
		return nil, errors.New("the parameter use_path_style of the output store's URL must be true or false")
	}
	conf, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("read the S3 configuration: %w", err)
	}
	if conf.Region == "" && endpoint != "" {
		// A request's signature needs one.
		conf.Region = "us-east-1"
	}
	if conf.Region == "" {
		return nil, errors.New("no region is known: add region=REGION to the output store's URL, or set AWS_REGION")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if own, ok := conf.HTTPClient.(*awshttp.BuildableClient); ok {
		// It trusts the authorities of AWS_CA_BUNDLE.
		transport = own.GetTransport()
	}
	limitTransport(transport)
	client := s3.NewFromConfig(conf, func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: transport, CheckRedirect: noRedirect}
		o.UsePathStyle = pathStyle
		if endpoint != "" {
			o.BaseEndpoint = aws.String(endpoint)
		}
	})
	return s3blob.OpenBucket(ctx, client, l.bucket, &s3blob.Options{RequestChecksumCalculation: conf.RequestChecksumCalculation})
}

// limitTransport bounds what a server that is away or slow holds.
func limitTransport(t *http.Transport) {
	t.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.MaxConnsPerHost = 64
	t.MaxIdleConnsPerHost = writesAtOnce + readsAtOnce
	t.IdleConnTimeout = 90 * time.Second
}

// noRedirect keeps signed requests from going where the server says.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// openFolder keeps objects as files. A folder that can't be written to is an error at once: no service can come back there.
func (l *Location) openFolder() (*blob.Bucket, error) {
	return fileblob.OpenBucket(l.bucket, &fileblob.Options{
		CreateDir: true, DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
	})
}

// removeFolder removes what is left of a call whose objects are deleted: of files, the folders.
func (l *Location) removeFolder(call string) error {
	if l.scheme != "file" {
		return nil
	}
	return os.RemoveAll(filepath.Join(l.bucket, filepath.FromSlash(l.prefix+call)))
}
