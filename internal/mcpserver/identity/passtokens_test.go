package identity

import (
	"reflect"
	"testing"

	"k8s.io/client-go/rest"
)

// Where tokens are passed on, the server's own credentials aren't used.
func TestTokensArePassedWithoutOtherCredentials(t *testing.T) {
	t.Parallel()
	conf := &rest.Config{Host: "https://api.example.com", BearerToken: "own", BearerTokenFile: "/own", Username: "u", Password: "p",
		Impersonate: rest.ImpersonationConfig{UserName: "u"}}
	passer, err := NewTokenPasser(conf)
	if err != nil {
		t.Fatal(err)
	}
	want := &rest.Config{Host: conf.Host}
	if !reflect.DeepEqual(passer.conf, want) {
		t.Errorf("left: %s", passer.conf)
	}
}
