package store

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/google/go-cmp/cmp"
)

func TestALocationIsRead(t *testing.T) {
	for text, want := range map[string]Location{
		"s3://bucket?region=eu-central-1": {scheme: "s3", bucket: "bucket", parameters: map[string]string{"region": "eu-central-1"}},
		"s3://bucket/?endpoint=https://minio.example.com:9000/": {
			scheme: "s3", bucket: "bucket", parameters: map[string]string{"endpoint": "https://minio.example.com:9000/"},
		},
		"s3://a.b?use_path_style=false&prefix=a/b/": {
			scheme: "s3", bucket: "a.b", prefix: "a/b/", parameters: map[string]string{"use_path_style": "false", "prefix": "a/b/"},
		},
		"s3://bucket":                    {scheme: "s3", bucket: "bucket", parameters: map[string]string{}},
		"gs://bucket_1?prefix=cluster-1": {scheme: "gs", bucket: "bucket_1", prefix: "cluster-1/", parameters: map[string]string{"prefix": "cluster-1"}},
		"azblob://container?storage_account=acc&domain=a.b": {
			scheme: "azblob", bucket: "container", parameters: map[string]string{"storage_account": "acc", "domain": "a.b"},
		},
		"file:///var/lib/../lib/output/": {scheme: "file", bucket: "/var/lib/output", parameters: map[string]string{}},
	} {
		got, err := ParseLocation(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(&want, got, cmp.AllowUnexported(Location{})); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestALocationThatIsNoneIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "must begin with s3://",
		"bucket":                          "must begin with s3://",
		"http://bucket":                   "must begin with s3://",
		"mem://":                          "must begin with s3://",
		"s3://":                           "names no bucket",
		"s3:bucket":                       "must have the form",
		"s3://bucket#x":                   "must have the form",
		"s3://bucket/path":                "use the parameter prefix",
		"s3://secret:password@bucket":     "must not have credentials",
		"s3://bucket?access_key=password": "unknown parameter",
		"s3://bucket?anonymous=true":      "unknown parameter",
		"s3://bucket?awssdk=v1":           "unknown parameter",
		"s3://bucket?region=a&region=b":   "one value",
		"s3://bucket?region=":             "one value",
		"s3://bucket?%zz":                 "parameters that can't be read",
		"s3://bucket?prefix=../up":        "prefix",
		"s3://bucket?prefix=/up":          "prefix",
		"s3://bucket?prefix=a//b":         "prefix",
		"s3://bucket?prefix=a/./b":        "prefix",
		"s3://bucket?prefix=" + strings.Repeat("a", 201):   "prefix",
		"s3://bucket?endpoint=store:9000":                  "endpoint",
		"s3://bucket?endpoint=ftp://store":                 "endpoint",
		"s3://bucket?endpoint=https://user:password@store": "endpoint",
		"s3://bucket?endpoint=https://store/path":          "endpoint",
		"s3://bucket?endpoint=https://store%3Fa=b":         "endpoint",
		"gs://bucket?endpoint=https://store":               "unknown parameter",
		"file://folder":                                    "absolute path",
		"file://host/path":                                 "absolute path",
		"file:///":                                         "absolute path",
		"file:///..":                                       "absolute path",
		"file:path":                                        "must have the form",
		"s3://bucket\x7f":                                  "isn't a URL",
		"s3://pass%word@x":                                 "isn't a URL",
	} {
		location, err := ParseLocation(text)
		if err == nil {
			t.Errorf("%q is taken as %+v", text, location)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), "pass%") {
			t.Errorf("%q: the error is %q", text, err)
		}
	}
}

func FuzzLocation(f *testing.F) {
	f.Add("s3://bucket?endpoint=https://store&prefix=a/b")
	f.Add("file:///var/lib/output")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLocation(text)
		if err != nil {
			return
		}
		if strings.Contains(l.prefix, "..") || strings.HasPrefix(l.prefix, "/") || (l.prefix != "" && !strings.HasSuffix(l.prefix, "/")) {
			t.Errorf("the prefix is %q", l.prefix)
		}
		if l.scheme == "file" && (!strings.HasPrefix(l.bucket, "/") || len(l.bucket) < 2) {
			t.Errorf("the folder is %q", l.bucket)
		}
	})
}

func TestS3NeedsARegionOrAnEndpoint(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	location, err := ParseLocation("s3://bucket")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), location, nil); err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
	odd, err := ParseLocation("s3://bucket?endpoint=https://store&use_path_style=maybe")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), odd, nil); err == nil || !strings.Contains(err.Error(), "true or false") {
		t.Errorf("with a path style that is none: %v", err)
	}
	t.Setenv("AWS_REGION", "eu-central-1")
	store, err := Open(t.Context(), location, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// Azure's account is that of the URL, or else that of the variables which have its key.
func TestAzuresAccountIsFoundInTheURLOrTheEnvironment(t *testing.T) {
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	for text, c := range map[string]struct{ variable, account string }{
		"azblob://container":                         {"acc", "acc"},
		"azblob://container?storage_account=another": {"acc", "another"},
		"azblob://container?storage_account=only":    {"", "only"},
	} {
		t.Setenv("AZURE_STORAGE_ACCOUNT", c.variable)
		location, err := ParseLocation(text)
		if err != nil {
			t.Fatal(err)
		}
		bucket, err := location.open(t.Context())
		if err != nil {
			t.Errorf("%s with %q in the environment: %v", text, c.variable, err)
			continue
		}
		var client *container.Client
		if !bucket.As(&client) || !strings.HasPrefix(client.URL(), "https://"+c.account+".") {
			t.Errorf("%s with %q in the environment: it is at %s", text, c.variable, client.URL())
		}
		bucket.Close()
	}
}

// A server can't have the operator ask somebody else: what it asks with is signed.
func TestARedirectIsNotFollowed(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test-account")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	store := open(t, "s3://bucket?endpoint="+server.URL)
	key := newKey()
	if _, err := store.Open(t.Context(), key); err == nil {
		t.Error("there is a stream")
	}
	if err := store.put(t.Context(), "calls/x", []byte("some output")); err == nil {
		t.Error("an object is stored")
	}
	if err := store.remove(t.Context(), "calls/x"); err == nil {
		t.Error("an object is removed")
	}
	if asked.Load() != 0 {
		t.Error("the other server is asked")
	}
}
