package operator

import (
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/controllers"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// The next leader may hand a session's call over at once: what the one before wrote must have arrived, or never arrive.
func TestAStatusIsWrittenWithinTheLease(t *testing.T) {
	t.Parallel()
	if renewDeadline+controllers.StatusTimeout >= leaseDuration {
		t.Errorf("a leader gives up after %s, a status may be written for %s, and the lease lasts %s", renewDeadline, controllers.StatusTimeout, leaseDuration)
	}
}

func TestProfilesStayOnTheMachine(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":               "",
		"127.0.0.1:6060": "",
		"[::1]:6060":     "",
		":6060":          "loopback",
		"0.0.0.0:6060":   "loopback",
		"10.0.0.1:6060":  "loopback",
		"localhost:6060": "loopback",
		"6060":           "missing port",
	} {
		o := &Options{}
		fs := flag.NewFlagSet("manager", flag.ContinueOnError)
		o.Bind(fs, func(string) string { return "x" })
		if err := fs.Parse([]string{"--runner-image=x", "--pprof-address=" + address}); err != nil {
			t.Fatal(err)
		}
		err := o.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// A leader that was paused, and doesn't know yet that another has followed, hands nothing to a runner any more.
func TestARunnerLeavesASilentLeaderBeforeTheNextOneBegins(t *testing.T) {
	t.Parallel()
	if wire.SilenceTimeout+retryPeriod >= leaseDuration {
		t.Errorf("a runner waits for %s, a leader renews its lease every %s, and the lease lasts %s", wire.SilenceTimeout, retryPeriod, leaseDuration)
	}
}

func TestNamespacesAreEachNamedOnce(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][]string{"": nil, "a": {"a"}, "a, b,": {"a", "b"}, "b,a,b": {"b", "a"}} {
		o := &Options{}
		fs := flag.NewFlagSet("manager", flag.ContinueOnError)
		o.Bind(fs, func(string) string { return "x" })
		if err := fs.Parse([]string{"--namespaces=" + list}); err != nil || !slices.Equal(o.Namespaces, want) {
			t.Errorf("%q: %q, %v", list, o.Namespaces, err)
		}
	}
}

func TestTheOutputStoreHasALocation(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		"": "",
		"s3://toolcall?endpoint=http://toolcall-store.toolcall-system.svc:9000": "",
		"gs://bucket?prefix=a/b":     "",
		"file:///var/lib/output":     "",
		"bucket":                     "must begin with",
		"s3://bucket?secret=x":       "unknown parameter",
		"s3://key:password@bucket":   "must not have credentials",
		"https://bucket.example.com": "must begin with",
	} {
		o := &Options{}
		fs := flag.NewFlagSet("manager", flag.ContinueOnError)
		o.Bind(fs, func(string) string { return "x" })
		if err := fs.Parse([]string{"--runner-image=x", "--output-store=" + location}); err != nil {
			t.Fatal(err)
		}
		err := o.Validate()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "password")) {
			t.Errorf("%q: %v", location, err)
		}
	}
}

func TestUserIDsAreARange(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"1000000000-1999999999": "", "": "", "1000": "user-ids", "1-1000": "must be FIRST-LAST"} {
		o := &Options{}
		fs := flag.NewFlagSet("manager", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		o.Bind(fs, func(string) string { return "x" })
		err := fs.Parse([]string{"--user-ids=" + given})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", given, err)
		}
		if err == nil && (o.Users.First > 0) != (given != "") {
			t.Errorf("%q: %+v", given, o.Users)
		}
	}
}
