package operator

import (
	"flag"
	"strings"
	"testing"
)

func TestTheAddressOfTheOutputAPIHasAPort(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		"":                                         "",
		"--output-api-address=:10251":              "",
		"--output-api-address=10.0.0.1:443":        "",
		"--output-api-address=":                    "missing port",
		"--output-api-address=:0":                  "between 1 and 65535",
		"--output-api-address=:https":              "between 1 and 65535",
		"--output-api=false --output-api-address=": "",
	} {
		o := &Options{}
		fs := flag.NewFlagSet("manager", flag.ContinueOnError)
		o.Bind(fs, func(string) string { return "x" })
		if err := fs.Parse(append([]string{"--runner-image=x"}, strings.Fields(arguments)...)); err != nil {
			t.Fatal(err)
		}
		err := o.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", arguments, err)
		}
	}
}
