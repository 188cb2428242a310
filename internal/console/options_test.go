package console

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	const api = "--server=https://kubernetes.default.svc"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"the defaults":                  {[]string{api}, ""},
		"all hosts with TLS":            {[]string{api, "--address=:8443", "--tls-cert-file=a", "--tls-private-key-file=b"}, ""},
		"all hosts without TLS":         {[]string{api, "--address=:8443"}, "other hosts can reach this address"},
		"behind a proxy":                {[]string{api, "--address=:8443", "--insecure-http"}, ""},
		"a certificate without its key": {[]string{api, "--tls-cert-file=a"}, "must be set together"},
		"a certificate and no TLS":      {[]string{api, "--tls-cert-file=a", "--tls-private-key-file=b", "--insecure-http"}, "--insecure-http"},
		"no API server":                 {nil, "--server"},
		"an API server without TLS":     {[]string{"--server=http://kubernetes.default.svc"}, "--server"},
		"no address":                    {[]string{api, "--address=8443"}, "--address"},
		"a host with a port":            {[]string{api, "--hosts=a:8443"}, "--hosts"},
		"any host":                      {[]string{api, "--hosts=*"}, "--hosts"},
		"a URL as a host":               {[]string{api, "--hosts=https://a"}, "--hosts"},
		"no requests":                   {[]string{api, "--max-requests=0"}, "--max-requests=0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, flags := &Options{}, pflag.NewFlagSet("", pflag.ContinueOnError)
			o.Bind(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			err := o.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
