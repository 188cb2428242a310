package guards

import (
	"strings"
	"testing"
)

func TestAPolicysNetworkIsChecked(t *testing.T) {
	t.Parallel()
	for spec, part := range map[string]string{
		`{"network":{}}`:                      "",
		`{"network":{"mode":"Unrestricted"}}`: "",
		`{"network":{"mode":"Unrestricted","deniedCIDRs":["10.0.0.0/8"]}}`:                                                   "spec.network.mode: Unrestricted holds calls to neither",
		`{"network":{"mode":"Unrestricted","allowed":[{"host":"a.test"}]}}`:                                                  "spec.network.mode: Unrestricted holds calls to neither",
		`{"network":{"mode":"Listed","allowed":[{"host":"*.example.com","ports":[443,8443]}],"deniedCIDRs":["10.0.0.0/8"]}}`: "",
		`{"network":{"mode":"Closed"}}`:                               "spec.network.mode: \"Closed\" isn't a mode",
		`{"network":{"allowed":[{"host":"a.test"},{"host":"*"}]}}`:    "spec.network.allowed[1].host",
		`{"network":{"allowed":[{"host":"a.test","ports":[0]}]}}`:     "spec.network.allowed[0].ports[0]",
		`{"network":{"deniedCIDRs":["10.0.0.1"]}}`:                    "spec.network.deniedCIDRs[0]",
		`{"network":{"allowed":[{"host":"169.254.169.254"}]}}`:        "",
		`{"network":{"mode":"Listed","allowed":[{"host":"10.1/8"}]}}`: "spec.network.allowed[0].host",
	} {
		_, err := Compile(specFrom(t, spec))
		if part == "" && err != nil || part != "" && (err == nil || !strings.Contains(err.Error(), part)) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// Where calls of code have network, their source may say so.
func TestANetworkModeHoldsForCodeToo(t *testing.T) {
	t.Parallel()
	for spec, allowed := range map[string]bool{
		`{"access":"Open"}`:                                                         false,
		`{"access":"Open","network":{}}`:                                            false,
		`{"access":"Open","network":{"mode":"Listed"}}`:                             true,
		`{"access":"Open","network":{"mode":"Open"}}`:                               true,
		`{"access":"Open","network":{"mode":"Unrestricted"}}`:                       true,
		`{"access":"Open","network":{"mode":"None"}}`:                               false,
		`{"access":"Open","network":{"mode":"None"},"code":{"networkAccess":true}}`: false,
		`{"access":"Open","network":{},"code":{"networkAccess":true}}`:              true,
	} {
		policy, err := Compile(specFrom(t, spec))
		if err != nil {
			t.Fatal(err)
		}
		if policy.code.network != allowed {
			t.Errorf("%s: network for code is %t", spec, policy.code.network)
		}
	}
}

func TestWarningsNameWhatOfTheNetworkIsOpen(t *testing.T) {
	t.Parallel()
	for spec, part := range map[string]string{
		`{}`:                                     "",
		`{"network":{"mode":"Open"}}`:            "",
		`{"network":{"mode":"Unrestricted"}}`:    "Unrestricted",
		`{"network":{"udp":true}}`:               "network.udp",
		`{"network":{"mode":"None","udp":true}}`: "",
		`{"network":{"allowed":[{"host":"a.test"},{"host":"169.254.169.254"}]}}`: "network.allowed[1].host: 169.254.169.254 is a link-local or metadata address",
		`{"network":{"allowed":[{"host":"fe80::/16"}]}}`:                         "network.allowed[0].host: fe80::/16 is",
		`{"network":{"allowed":[{"host":"169.254.0.0/15"}]}}`:                    "",
	} {
		policy, err := Compile(specFrom(t, spec))
		if err != nil {
			t.Fatal(err)
		}
		warnings := strings.Join(policy.Warnings(), "\n")
		if (warnings == "") != (part == "") || !strings.Contains(warnings, part) {
			t.Errorf("%s: %q", spec, warnings)
		}
	}
}
