package rules

import "testing"

var (
	linux67 = Support{LandlockABI: ABIConnections, Filter: true, Listener: true, AddDescriptor: true, ReadMemory: true, Trace: true}
	listed  = &Rules{Programs: &Programs{}}
	paths   = &Rules{WritePaths: []string{"/w"}}
	online  = &Rules{Connections: true}
	all     = &Rules{Connections: true, Programs: &Programs{}, WritePaths: []string{"/w"}}
)

// with is a node that differs.
func with(change func(*Support)) Support {
	s := linux67
	change(&s)
	return s
}

func landlock(abi int) Support { return with(func(s *Support) { s.LandlockABI = abi }) }

var noListener = Support{Filter: true, ReadMemory: true, Trace: true}

func TestTheStrongestWayIsTaken(t *testing.T) {
	t.Parallel()
	beside, besideOnline := *listed, *online
	beside.Beside, besideOnline.Beside = true, true
	root := landlock(0)
	root.Self = &Self{User: 0}
	const listener = "seccomp filter with a listener, which holds connections"
	for name, c := range map[string]struct {
		support Support
		rules   *Rules
		want    Way
		missing string
	}{
		"all of Linux 6.7":                           {linux67, all, Way{Landlock: 4}, ""},
		"all of Linux 6.2":                           {landlock(3), all, Way{Landlock: 3}, ""},
		"all of Linux 6.1":                           {landlock(2), all, Way{Landlock: 2}, ""},
		"all of Linux 5.15":                          {landlock(1), all, Way{Landlock: 1}, ""},
		"programs on Linux 5.15":                     {landlock(1), listed, Way{}, ""},
		"programs beside others on Linux 5.15":       {landlock(1), &beside, Way{Landlock: 1}, ""},
		"nothing on Linux 5.15":                      {landlock(1), &Rules{}, Way{}, "Landlock"},
		"programs without Landlock":                  {landlock(0), listed, Way{}, ""},
		"connections without Landlock":               {landlock(0), online, Way{}, ""},
		"paths without Landlock":                     {landlock(0), paths, Way{}, "Landlock"},
		"nothing without Landlock":                   {landlock(0), &Rules{}, Way{}, "Landlock"},
		"nothing beside others on Linux 5.15":        {landlock(1), &Rules{Beside: true}, Way{Landlock: 1}, ""},
		"nothing beside others without Landlock":     {landlock(0), &Rules{Beside: true}, Way{}, "Landlock"},
		"programs of root without Landlock":          {root, listed, Way{}, "Landlock, without which root can write to every program"},
		"programs beside others without Landlock":    {landlock(0), &beside, Way{}, "Landlock, which keeps calls of a session from each other's processes"},
		"connections beside others without Landlock": {landlock(0), &besideOnline, Way{}, "Landlock, which keeps calls of a session from each other's processes"},
		"programs without a listener":                {noListener, listed, Way{Trace: true}, ""},
		"connections without a listener":             {noListener, online, Way{}, listener},
		"paths without both":                         {noListener, paths, Way{}, "Landlock"},
		"a profile without listeners":                {with(func(s *Support) { s.Listener = false }), listed, Way{Landlock: 4, Trace: true}, ""},
		"paths need no listener":                     {Support{LandlockABI: 4, Filter: true}, paths, Way{Landlock: 4}, ""},
		"no descriptors":                             {with(func(s *Support) { s.AddDescriptor = false }), online, Way{Landlock: 4}, "way to pass descriptors through a seccomp listener"},
		"no memory":                                  {with(func(s *Support) { s.ReadMemory = false }), online, Way{Landlock: 4}, "right to read the memory of a call's processes"},
		"no memory, programs":                        {with(func(s *Support) { s.ReadMemory = false }), listed, Way{Landlock: 4}, "right to read the memory of a call's processes"},
		"no trace":                                   {with(func(s *Support) { s.Trace = false }), listed, Way{Landlock: 4}, "right to trace a call's processes"},
		"no filter":                                  {Support{LandlockABI: 4, ReadMemory: true, Trace: true}, listed, Way{Landlock: 4}, "seccomp filter"},
		"an older runner":                            {with(func(s *Support) { s.Filter = false }), all, Way{Landlock: 4}, ""},
		"nothing":                                    {Support{}, listed, Way{}, "Landlock"},
	} {
		if w, missing := c.support.WayFor(c.rules); missing != c.missing || missing == "" && w != c.want {
			t.Errorf("%s: %+v, missing %q", name, w, missing)
		}
	}
}

func TestAWayHasTheNameOfWhatHoldsMost(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]Way{WayLandlock: {Landlock: 1}, WayGate: {}, WayTrace: {Landlock: 7, Trace: true}} {
		if got := w.Name(); got != want {
			t.Errorf("%+v is called %s", w, got)
		}
	}
}

// What a node has needn't be given up.
func TestTheWayOutGivesUpWhatIsMissing(t *testing.T) {
	t.Parallel()
	const noNetwork = "network.mode to None, or to Unrestricted with NetworkPolicies for the pods, which holds no connection here"
	for name, tc := range map[string]struct {
		support Support
		rules   *Rules
		want    string
	}{
		"nothing":                    {Support{}, all, noNetwork + "; and binaries.enforcement to Name, which is weak; and no paths under files"},
		"no Landlock":                {landlock(0), all, "no paths under files"},
		"no listener":                {noListener, all, noNetwork + "; and no paths under files"},
		"no listener, for a network": {noListener, online, noNetwork},
		"nothing, for programs":      {Support{}, listed, "binaries.enforcement to Name, which is weak"},
		"no Landlock, for a session": {landlock(0), &Rules{Connections: true, Beside: true}, noNetwork},
	} {
		if got := tc.support.WayOut(tc.rules); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
