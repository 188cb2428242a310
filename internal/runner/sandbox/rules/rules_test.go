package rules

import "testing"

// What a node has needn't be given up.
func TestTheWayOutGivesUpWhatIsMissing(t *testing.T) {
	t.Parallel()
	all := &Rules{Connections: true, Programs: &Programs{}, WritePaths: []string{"/w"}}
	const noNetwork = "network.mode to None, or to Unrestricted, which holds no connection"
	for name, tc := range map[string]struct {
		support Support
		rules   *Rules
		want    string
	}{
		"no Landlock":                {Support{}, all, noNetwork + "; and binaries.enforcement to Name, which is weak; and no paths under files"},
		"no Landlock, for a network": {Support{}, &Rules{Connections: true}, noNetwork},
		"no Landlock, for programs":  {Support{}, &Rules{Programs: &Programs{}}, "binaries.enforcement to Name, which is weak"},
		"Linux 6.2":                  {Support{LandlockABI: 3, Listener: true, AddDescriptor: true, ReadMemory: true, Trace: true}, all, noNetwork},
	} {
		if got := tc.support.WayOut(tc.rules); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
