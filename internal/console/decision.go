package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/whoami"
)

const (
	// maxDecision bounds the body of a decision: a note of the longest characters, escaped, takes most of it.
	maxDecision = 16 << 10
	// decisionTimeout bounds how long its bytes may take.
	decisionTimeout = 10 * time.Second
	// maxNote is the bound of a note in the API, in characters.
	maxNote = 1024
	// maxGeneratedPrefix leaves room in a name for what the API server appends.
	maxGeneratedPrefix = 200

	// userPath asks the API server who the user of a token is. It answers a POST, and stores nothing.
	userPath   = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	userReview = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	// maxUser bounds what is read of that answer.
	maxUser = 1 << 20
)

var (
	decisionPath = regexp.MustCompile(`^/apis/toolcall\.dev/v1alpha1/namespaces/([^/]+)/` + approvals + `$`)
	digestForm   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// decision is what a page may say about a call. The rest of a ToolCallApproval isn't the page's.
type decision struct {
	CallRef  v1alpha1.CallReference    `json:"callRef"`
	Digest   string                    `json:"digest"`
	Decision v1alpha1.ApprovalDecision `json:"decision"`
	Note     string                    `json:"note"`
}

// isDecision says whether a request is the one kind that writes.
func isDecision(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.RawPath == "" && r.URL.Host == "" && decisionPath.MatchString(r.URL.Path)
}

// refusalOfDecision says why a decision isn't read; 0 when it is.
func refusalOfDecision(r *http.Request) (code int, message string) {
	switch {
	case r.ContentLength <= 0:
		return http.StatusLengthRequired, "a decision needs a body, and the header Content-Length"
	case r.ContentLength > maxDecision:
		return http.StatusRequestEntityTooLarge, fmt.Sprintf("a decision has at most %d bytes", maxDecision)
	case len(r.Header.Values("Content-Type")) != 1 || r.Header.Get("Content-Type") != "application/json":
		return http.StatusUnsupportedMediaType, "the Content-Type of a decision must be application/json"
	case r.URL.RawQuery != "":
		return http.StatusBadRequest, "a decision takes no parameters"
	default:
		return 0, ""
	}
}

// parseDecision reads a decision and returns the ToolCallApproval that it asks for. Nothing of the body goes on as it is.
func parseDecision(w http.ResponseWriter, r *http.Request) (*target, error) {
	namespace := decisionPath.FindStringSubmatch(r.URL.Path)[1]
	if err := checkNamespace(namespace); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxDecision))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err != nil {
		return nil, errors.New("the body of the decision didn't arrive")
	}
	d, err := decodeDecision(body)
	if err != nil {
		return nil, err
	}
	return &target{path: r.URL.Path, query: url.Values{}, answer: objects, decision: d.approval(namespace)}, nil
}

func decodeDecision(body []byte) (*decision, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("the decision isn't UTF-8")
	}
	d := &decision{}
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(d); err != nil {
		return nil, errors.New("the decision must be JSON with callRef, digest, decision and note: " + bounds.Text(err.Error(), maxMessage))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the decision must be one JSON object, with nothing after it")
	}
	return d, d.check()
}

func (d *decision) check() error {
	switch n := utf8.RuneCountInString(d.Note); {
	case checkName(d.CallRef.Name) != nil:
		return fmt.Errorf("callRef: %w", checkName(d.CallRef.Name))
	case !uidForm.MatchString(d.CallRef.UID):
		return fmt.Errorf("callRef.uid must match %s", uidForm)
	case !digestForm.MatchString(d.Digest):
		return fmt.Errorf("digest must match %s", digestForm)
	case d.Decision != v1alpha1.DecisionApprove && d.Decision != v1alpha1.DecisionDeny:
		return fmt.Errorf("decision must be %s or %s", v1alpha1.DecisionApprove, v1alpha1.DecisionDeny)
	case n > maxNote:
		return fmt.Errorf("note has %d characters, at most %d are possible", n, maxNote)
	default:
		return nil
	}
}

// approval is the object that a decision becomes, without the approver.
func (d *decision) approval(namespace string) *v1alpha1.ToolCallApproval {
	prefix := d.CallRef.Name[:min(len(d.CallRef.Name), maxGeneratedPrefix)]
	return &v1alpha1.ToolCallApproval{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ToolCallApproval"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: strings.TrimRight(prefix, "-.") + "-"},
		Spec:       v1alpha1.ToolCallApprovalSpec{CallRef: d.CallRef, Digest: d.Digest, Decision: d.Decision, Note: d.Note},
	}
}

// sign writes the user of the token into a decision, as the API server names it: where no admission policy does so, admission
// compares the two. It answers the client, and returns false, when it can't.
func (p *proxy) sign(ctx context.Context, w http.ResponseWriter, t *target, token string) bool {
	response := p.ask(ctx, w, &target{path: userPath, body: []byte(userReview)}, token)
	if response == nil {
		return false
	}
	defer response.Body.Close()
	review := &authenticationv1.SelfSubjectReview{}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxUser)).Decode(review); err != nil || review.Status.UserInfo.Username == "" {
		reject(w, http.StatusBadGateway, "the API server doesn't say who you are")
		return false
	}
	t.decision.Spec.Approver = whoami.Requester(&review.Status.UserInfo)
	t.body, _ = json.Marshal(t.decision)
	return true
}

// success is the code of the answer that the API server gives when it does what is asked.
func (t *target) success() int {
	if t.body != nil {
		return http.StatusCreated
	}
	return http.StatusOK
}
