package store

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Location is where streams are kept. It holds no credentials: those come from the platform, by the means of each service's
// own libraries.
type Location struct {
	scheme string
	// bucket is the bucket's name, or the folder of a file: location.
	bucket string
	// prefix is before the names of all objects: empty, or ending with a slash.
	prefix string
	// parameters are the others, by their names.
	parameters map[string]string
}

// service is a kind of location.
type service struct {
	form       string
	parameters []string
}

var services = map[string]service{
	"s3": {
		form:       "s3://BUCKET?region=REGION or s3://BUCKET?endpoint=https://HOST:PORT",
		parameters: []string{"endpoint", "prefix", "region", "use_path_style"},
	},
	"gs":     {form: "gs://BUCKET", parameters: []string{"prefix"}},
	"azblob": {form: "azblob://CONTAINER?storage_account=ACCOUNT", parameters: []string{"domain", "prefix", "storage_account"}},
	"file":   {form: "file:///FOLDER", parameters: []string{"prefix"}},
}

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(/[A-Za-z0-9][A-Za-z0-9_-]*)*$`)

// ParseLocation reads the URL of a location. Its errors don't repeat the URL, in which somebody may have put a password.
func ParseLocation(text string) (*Location, error) {
	l, err := parseLocation(text)
	if err != nil {
		return nil, fmt.Errorf("the output store's URL %w", err)
	}
	return l, nil
}

func parseLocation(text string) (*Location, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("isn't a URL")
	}
	kind, ok := services[u.Scheme]
	if !ok {
		return nil, errors.New("must begin with s3://, gs://, azblob:// or file:///")
	}
	if u.User != nil {
		return nil, errors.New("must not have credentials: give them to the operator's pod, in environment variables or by the platform's workload identity")
	}
	if u.Fragment != "" || u.Opaque != "" {
		return nil, fmt.Errorf("must have the form %s", kind.form)
	}
	values, err := parameters(u.RawQuery, kind)
	if err != nil {
		return nil, err
	}
	l := &Location{scheme: u.Scheme, bucket: u.Host, parameters: values}
	if l.prefix, err = parsePrefix(values["prefix"]); err != nil {
		return nil, err
	}
	switch {
	case u.Scheme == "file":
		return l, l.setFolder(u)
	case u.Host == "":
		return nil, fmt.Errorf("names no bucket: it must have the form %s", kind.form)
	case u.Path != "" && u.Path != "/":
		return nil, errors.New("must have no path: use the parameter prefix to keep output below a path in the bucket")
	}
	return l, checkEndpoint(values["endpoint"])
}

// parameters returns the URL's parameters, each of which is known and there once.
func parameters(query string, kind service) (map[string]string, error) {
	all, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("has parameters that can't be read")
	}
	values := map[string]string{}
	for name, given := range all {
		if !slices.Contains(kind.parameters, name) {
			return nil, fmt.Errorf("has the unknown parameter %.40q; known ones are %s", name, strings.Join(kind.parameters, ", "))
		}
		if len(given) != 1 || given[0] == "" {
			return nil, fmt.Errorf("must have one value for the parameter %s", name)
		}
		values[name] = given[0]
	}
	return values, nil
}

func parsePrefix(text string) (string, error) {
	text = strings.TrimSuffix(text, "/")
	if text == "" {
		return "", nil
	}
	if len(text) > 200 || !validPrefix.MatchString(text) {
		return "", errors.New("has an invalid prefix: it must be names of letters, digits, - and _, with slashes between them, of 200 characters at most")
	}
	return text + "/", nil
}

func (l *Location) setFolder(u *url.URL) error {
	if u.Host != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) == "/" {
		return errors.New("must name a folder by its absolute path, as in file:///var/lib/toolcall/output")
	}
	l.bucket = path.Clean(u.Path)
	return nil
}

func checkEndpoint(endpoint string) error {
	e, err := url.Parse(endpoint)
	if endpoint == "" || err == nil && (e.Scheme == "http" || e.Scheme == "https") && e.Host != "" && e.User == nil && strings.Trim(e.RequestURI(), "/") == "" {
		return nil
	}
	return errors.New("has an endpoint that isn't http:// or https:// with a host and nothing behind it")
}
