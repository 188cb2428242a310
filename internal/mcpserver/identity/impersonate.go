package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// probeUser is a user without rights. That the server may act for it shows that the API server has constrained impersonation.
const probeUser = "toolcall-mcp-probe"

var (
	errPrivileged = &TokenError{"the token belongs to a member of system:masters, for whom no server may act: use a user whose rights RBAC grants"}
	errUnsendable = &TokenError{"the user's name, UID, a group or an extra attribute can't be sent to the API server: values have no control characters " +
		"and no space at either end, and keys are in lower case"}
)

// Impersonator accepts the tokens that are meant for the server, and has clients act for their users by constrained impersonation, with the
// server's own credentials. It sends a token nowhere but to the API server, for its review.
type Impersonator struct {
	conf      *rest.Config
	audiences []string
	reviews   rest.Interface
	invalid   *TokenError
}

// NewImpersonator uses a connection with credentials of the server's own. A token is meant for the server if it has one of the audiences.
func NewImpersonator(conf *rest.Config, audiences []string) (*Impersonator, error) {
	reviews, err := newReviews(conf)
	if err != nil {
		return nil, err
	}
	return &Impersonator{conf: conf, audiences: audiences, reviews: reviews, invalid: &TokenError{fmt.Sprintf(
		"the cluster doesn't accept this token for this server: it has expired, or isn't meant for the audience %s, as kubectl create token ACCOUNT --audience=%s makes it",
		strings.Join(audiences, " or "), audiences[0])}}, nil
}

// Review asks the API server whose a token is, and whether it is meant for this server.
func (i *Impersonator) Review(ctx context.Context, token string) (*Requester, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: i.audiences}}
	if err := post(ctx, i.reviews, "tokenreviews", review, "", ""); err != nil {
		return nil, fmt.Errorf("ask the API server whose the token is: %w", err)
	}
	// An authenticator that knows no audiences names none: then the token is meant for the API server.
	if !review.Status.Authenticated || !slices.ContainsFunc(review.Status.Audiences, i.isMeant) {
		return nil, i.invalid
	}
	info := &review.Status.User
	as, err := impersonation(info)
	if err != nil {
		return nil, err
	}
	conf := rest.CopyConfig(i.conf)
	conf.Impersonate = as
	acting := *info
	acting.UID = as.UID
	return newRequester(conf, &acting, info.UID)
}

func (i *Impersonator) isMeant(audience string) bool { return slices.Contains(i.audiences, audience) }

// impersonation is how the API server lets a server act for a user. It takes only the name of a ServiceAccount, whose groups it knows itself,
// and no UID.
func impersonation(info *authenticationv1.UserInfo) (rest.ImpersonationConfig, error) {
	as := rest.ImpersonationConfig{UserName: info.Username, UID: info.UID, Groups: info.Groups}
	if err := checkUser(info); err != nil {
		return as, err
	}
	if slices.Contains(info.Groups, user.SystemPrivilegedGroup) {
		return as, errPrivileged
	}
	namespace, _, err := serviceaccount.SplitUsername(info.Username)
	if err == nil && !slices.ContainsFunc(serviceaccount.MakeGroupNames(namespace), func(g string) bool { return !slices.Contains(info.Groups, g) }) {
		return rest.ImpersonationConfig{UserName: info.Username}, nil
	}
	if len(info.Extra) > 0 {
		as.Extra = map[string][]string{}
	}
	for key, values := range info.Extra {
		as.Extra[key] = values
	}
	return as, checkSendable(&as)
}

// checkSendable returns an error unless headers carry the user as it is. They lose space at either end, and the case of keys: what is
// left could be another user, or one with more rights.
func checkSendable(as *rest.ImpersonationConfig) error {
	values := append([]string{as.UserName, as.UID}, as.Groups...)
	for key, more := range as.Extra {
		if key != strings.ToLower(key) || len(more) == 0 {
			return errUnsendable
		}
		values = append(append(values, key), more...)
	}
	for _, value := range values {
		if strings.TrimSpace(value) != value || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errUnsendable
		}
	}
	return nil
}

// Check returns what keeps the server from acting for its callers: an API server without constrained impersonation, or missing rights.
func (i *Impersonator) Check(ctx context.Context) error {
	probe := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "probe", Audiences: i.audiences}}
	if err := post(ctx, i.reviews, "tokenreviews", probe, "", ""); err != nil {
		return fmt.Errorf("review a token as the server's own account, which needs the ClusterRole toolcall-mcp: %w", err)
	}
	self := &authenticationv1.SelfSubjectReview{}
	err := post(ctx, i.reviews, "selfsubjectreviews", self, authenticationv1.ImpersonateUserHeader, probeUser)
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate resource"):
		return fmt.Errorf("the API server has no constrained impersonation: use Kubernetes 1.36 or newer, or 1.35 with the API server's feature gate "+
			"ConstrainedImpersonation, or pass tokens on with --pass-tokens: %w", err)
	case err != nil:
		return fmt.Errorf("act for a caller, which needs the ClusterRole toolcall-mcp: %w", err)
	case self.Status.UserInfo.Username != probeUser:
		return fmt.Errorf("the API server took the server for %q instead of the user that it acts for", self.Status.UserInfo.Username)
	}
	return nil
}

// IsNotEntrusted reports whether the API server refused that the server acts for a user, whatever that user may do.
func IsNotEntrusted(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate")
}
