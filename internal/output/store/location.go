package store

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
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

	// Of s3: locations.
	endpoint  string
	region    string
	pathStyle bool

	// Of azblob: locations.
	account string
	domain  string
}

// service is a kind of location.
type service struct {
	form       string
	parameters []string
	bucket     *regexp.Regexp
}

var services = map[string]service{
	"s3": {
		form:       "s3://BUCKET?region=REGION or s3://BUCKET?endpoint=https://HOST:PORT",
		parameters: []string{"endpoint", "prefix", "region", "use_path_style"},
		bucket:     regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`),
	},
	"gs": {
		form:       "gs://BUCKET",
		parameters: []string{"prefix"},
		bucket:     regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`),
	},
	"azblob": {
		form:       "azblob://CONTAINER?storage_account=ACCOUNT",
		parameters: []string{"domain", "prefix", "storage_account"},
		bucket:     regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`),
	},
	"file": {
		form:       "file:///FOLDER",
		parameters: []string{"prefix"},
	},
}

var (
	validPrefix  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(/[A-Za-z0-9][A-Za-z0-9_-]*)*$`)
	validRegion  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	validAccount = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	validDomain  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,252}[a-z0-9])?$`)
)

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
	l := &Location{scheme: u.Scheme, bucket: u.Host}
	if l.prefix, err = parsePrefix(values["prefix"]); err != nil {
		return nil, err
	}
	if u.Scheme == "file" {
		return l, l.setFolder(u)
	}
	if !kind.bucket.MatchString(u.Host) || strings.Contains(u.Host, "..") {
		return nil, fmt.Errorf("names no bucket: it must have the form %s", kind.form)
	}
	if u.Path != "" && u.Path != "/" {
		return nil, errors.New("must have no path: use the parameter prefix to keep output below a path in the bucket")
	}
	switch u.Scheme {
	case "s3":
		err = l.setS3(values)
	case "azblob":
		err = l.setAzure(values)
	}
	return l, err
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
		return "", errors.New("has a prefix that isn't one: it must be names of letters, digits, - and _, with slashes between them")
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

func (l *Location) setS3(values map[string]string) error {
	l.region, l.endpoint = values["region"], strings.TrimSuffix(values["endpoint"], "/")
	if l.region != "" && !validRegion.MatchString(l.region) {
		return errors.New("has a region that isn't one, such as eu-central-1")
	}
	if l.endpoint != "" {
		e, err := url.Parse(l.endpoint)
		if err != nil || (e.Scheme != "http" && e.Scheme != "https") || e.Host == "" || e.User != nil || e.Path != "" || e.RawQuery != "" || e.Fragment != "" {
			return errors.New("has an endpoint that isn't http:// or https:// with a host and nothing behind it")
		}
	}
	// Few servers but Amazon's have a name for each bucket.
	l.pathStyle = l.endpoint != ""
	if text, ok := values["use_path_style"]; ok {
		var err error
		if l.pathStyle, err = strconv.ParseBool(text); err != nil {
			return errors.New("must have true or false for the parameter use_path_style")
		}
	}
	return nil
}

func (l *Location) setAzure(values map[string]string) error {
	l.account, l.domain = values["storage_account"], values["domain"]
	if !validAccount.MatchString(l.account) {
		return errors.New("must name the storage account: azblob://CONTAINER?storage_account=ACCOUNT")
	}
	if l.domain != "" && !validDomain.MatchString(l.domain) {
		return errors.New("has a domain that isn't one, such as blob.core.windows.net")
	}
	return nil
}
