package console

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	// apiPrefix is where requests begin that are passed on. What follows is as in the API server's own paths.
	apiPrefix = "/apis/"

	// maxPage bounds the objects of one answer to a list.
	maxPage = 500
	// maxBytes bounds the bytes of an answer with output that isn't followed.
	maxBytes = 64 << 20
	// maxParameter bounds a parameter. A token to go on with a list is the longest.
	maxParameter = 4096
)

// answer is what a request is answered with.
type answer int

const (
	// objects are whole, as JSON.
	objects answer = iota
	// rows are those of a table, as JSON: what kubectl get prints, without commands and output.
	rows
	// stream is of bytes.
	stream
)

// target is a request to the API server.
type target struct {
	path   string
	query  url.Values
	answer answer
	// endless says that the answer goes on until the client or the server ends it: a watch or a follow.
	endless bool
	// decision is what is to be written, with the approver that the API server names; nil for reads.
	decision *v1alpha1.ToolCallApproval
	// body is what is created; nil for what is only read.
	body []byte
}

// errNotServed says that the console doesn't pass on such a path.
var errNotServed = errors.New("the console reads calls, sessions, environments, policies, budgets, approvals, output and who you are, and nothing else")

// namespaced lists the resources that the console reads in namespaces, and clusterScoped the others.
var (
	namespaced    = []string{"toolcalls", "toolsessions", "executionenvironments", approvals, budgets}
	clusterScoped = []string{"executionpolicies"}
)

const (
	approvals = "toolcallapprovals"
	budgets   = "toolbudgets"
)

// Fields whose values are names.
const (
	ownName     = "metadata.name"
	sessionName = "spec.sessionRef.name"
)

// selection is a field by which objects of a resource are selected.
type selection struct {
	// resource is one of namespaced or clusterScoped; empty for all of them.
	resource, field string
	// values are those that may be selected; empty for any.
	values []string
	answer answer
}

// selections are all that the console passes on. Objects are whole where something is shown that rows don't have.
var selections = []selection{
	{field: ownName, answer: objects},
	{resource: "toolcalls", field: "status.reason", values: []string{v1alpha1.ReasonAwaitingApproval}, answer: rows},
	{resource: "toolcalls", field: "status.reason", answer: objects, values: []string{
		v1alpha1.ReasonDeniedByRule, v1alpha1.ReasonGuardError, v1alpha1.ReasonApprovalDenied, v1alpha1.ReasonApprovalExpired,
	}},
	{resource: "toolcalls", field: sessionName, answer: rows},
	{resource: approvals, field: "spec.approver.username", answer: rows},
}

// What parameters look like.
var (
	versionForm  = regexp.MustCompile(`^[0-9]{1,20}$`)
	continueForm = regexp.MustCompile(`^[A-Za-z0-9_=-]+$`)
	streamForm   = regexp.MustCompile(`^std(out|err)$`)
	uidForm      = regexp.MustCompile(`^[0-9a-f-]{36}$`)
)

// The paths that pass, in parts whose names are checked besides.
var (
	objectsPath = regexp.MustCompile(`^/apis/toolcall\.dev/v1alpha1/(?:namespaces/([^/]+)/)?([a-z]+)(?:/([^/]+))?$`)
	logPath     = regexp.MustCompile(`^/apis/subresources\.toolcall\.dev/v1alpha1/namespaces/([^/]+)/toolcalls/([^/]+)/log$`)
)

// parseTarget returns the request that the API server gets. It is made of checked parts: the path is one of these, and every parameter is
// known.
func parseTarget(u *url.URL) (*target, error) {
	// Only an escaped path has a raw form, and no part of a path needs escaping.
	if u.RawPath != "" || u.Host != "" || u.Opaque != "" {
		return nil, errNotServed
	}
	values, err := singleValues(u.RawQuery)
	if err != nil {
		return nil, err
	}
	t := &target{path: u.Path, query: url.Values{}}
	if u.Path == userPath {
		t.body = []byte(userReview)
		return t, t.take(values, nil)
	}
	if log := logPath.FindStringSubmatch(u.Path); log != nil {
		return t, errors.Join(checkNamespace(log[1]), checkName(log[2]), t.parseLog(values))
	}
	object := objectsPath.FindStringSubmatch(u.Path)
	if object == nil {
		return nil, errNotServed
	}
	namespace, resource, name := object[1], object[2], object[3]
	isNamespaced, isCluster := slices.Contains(namespaced, resource), slices.Contains(clusterScoped, resource)
	switch {
	case !isNamespaced && !isCluster, isCluster && namespace != "", isNamespaced && namespace == "" && name != "":
		return nil, errNotServed
	case namespace != "" && checkNamespace(namespace) != nil:
		return nil, checkNamespace(namespace)
	case name != "":
		return t, errors.Join(checkName(name), t.take(values, nil))
	default:
		return t, t.parseList(resource, values)
	}
}

// singleValues parses parameters, each of which may be given once.
func singleValues(query string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("the parameters can't be parsed: %w", err)
	}
	for name, all := range values {
		if len(all) != 1 {
			return nil, fmt.Errorf("parameter %.40q is given %d times", name, len(all))
		}
		if len(all[0]) > maxParameter || !utf8.ValidString(all[0]) {
			return nil, fmt.Errorf("parameter %.40q is too long, or isn't UTF-8", name)
		}
	}
	return values, nil
}

// parseList parses the parameters of a list or watch. A list has rows, unless something is shown of whole objects.
func (t *target) parseList(resource string, values url.Values) error {
	t.answer = rows
	if resource == budgets {
		t.answer = objects // Nobody in a namespace can write one, and those who can have no use for large ones.
	}
	err := t.take(values, map[string]func(string) error{
		"watch":           isTrue,
		"resourceVersion": matches(versionForm),
		"continue":        matches(continueForm),
		"limit":           isNumber(1, maxPage),
		"fieldSelector": func(value string) (err error) {
			t.answer, err = answerOf(resource, value)
			return err
		},
	})
	if t.query.Has("watch") {
		t.endless = true
		t.query.Set("allowWatchBookmarks", "true")
		t.query.Set("timeoutSeconds", strconv.Itoa(int(maxStream.Seconds())))
	} else if !t.query.Has("limit") {
		t.query.Set("limit", strconv.Itoa(maxPage))
	}
	return err
}

// answerOf checks a selector, and returns what a list with it is answered with.
func answerOf(resource, selector string) (answer, error) {
	parsed, err := fields.ParseSelector(selector)
	if err != nil || len(parsed.Requirements()) != 1 {
		return objects, errors.New("must select one value of one field")
	}
	by := parsed.Requirements()[0]
	// The API server gets the text as it is, so it has to be the only one for what was checked.
	if fields.OneTermEqualSelector(by.Field, by.Value).String() != selector {
		return objects, errors.New("must be FIELD=VALUE, and nothing else")
	}
	for _, s := range selections {
		if (s.resource == "" || s.resource == resource) && s.field == by.Field && (len(s.values) == 0 || slices.Contains(s.values, by.Value)) {
			if s.field == ownName || s.field == sessionName {
				return s.answer, checkName(by.Value)
			}
			return s.answer, nil
		}
	}
	return objects, fmt.Errorf("the console doesn't select %s by that", resource)
}

// parseLog parses the parameters of a request for output or an artifact.
func (t *target) parseLog(values url.Values) error {
	t.answer = stream
	err := t.take(values, map[string]func(string) error{
		"stream":   matches(streamForm),
		"artifact": func(string) error { return nil },
		"offset":   isNumber(0, 1<<62),
		"limit":    isNumber(1, maxBytes),
		"follow":   isTrue,
		"uid":      matches(uidForm),
	})
	if t.query.Has("follow") {
		t.endless = true
	} else if !t.query.Has("limit") {
		t.query.Set("limit", strconv.Itoa(maxBytes))
	}
	return err
}

// take keeps the parameters that are known, and returns an error for any other.
func (t *target) take(values url.Values, known map[string]func(string) error) error {
	for name := range values {
		check := known[name]
		if check == nil {
			return fmt.Errorf("the console doesn't pass on parameter %.40q", name)
		}
		if err := check(values.Get(name)); err != nil {
			return fmt.Errorf("parameter %s: %w", name, err)
		}
		t.query.Set(name, values.Get(name))
	}
	return nil
}

func checkNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("namespace %.80q: must consist of at most 63 lower-case letters, digits and dashes", name)
	}
	return nil
}

func checkName(name string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("name %.80q: must consist of lower-case letters, digits, dashes and dots", name)
	}
	return nil
}

func isTrue(value string) error {
	if value != "true" {
		return errors.New("must be true, or left out")
	}
	return nil
}

func isNumber(least, most int64) func(string) error {
	return func(value string) error {
		if n, err := strconv.ParseUint(value, 10, 63); err != nil || int64(n) < least || int64(n) > most {
			return fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		return nil
	}
}

func matches(pattern *regexp.Regexp) func(string) error {
	return func(value string) error {
		if !pattern.MatchString(value) {
			return fmt.Errorf("must match %s", pattern)
		}
		return nil
	}
}
