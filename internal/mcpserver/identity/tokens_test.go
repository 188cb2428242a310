package identity

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func keyOfText(text string) (key TokenKey) {
	copy(key[:], text)
	return key
}

func TestIdentitiesAreFreshThenKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		known := NewAccepted(10*time.Second, 10, 10)
		user := &Requester{User: "u", Tenant: "u"}
		expect := func(wantKnown, wantFresh bool) {
			t.Helper()
			if found, fresh := known.Get(keyOfText("a")); (found == user) != wantKnown || fresh != wantFresh {
				t.Errorf("got %v, fresh %t", found, fresh)
			}
		}
		expect(false, false)
		known.Add(keyOfText("a"), user)
		expect(true, true)
		time.Sleep(10 * time.Second)
		expect(true, false)
		known.Add(keyOfText("a"), user)
		expect(true, true)
		time.Sleep(time.Hour)
		expect(false, false)
		known.Add(keyOfText("a"), user)
		known.Forget(keyOfText("a"))
		known.Forget(keyOfText("a"))
		expect(false, false)
		if known.Len() != 0 {
			t.Errorf("left: %v", known.entries)
		}
	})
}

// A tenant with any number of tokens evicts its own, the least recently used first.
func TestATenantEvictsItsOwnTokens(t *testing.T) {
	t.Parallel()
	known := NewAccepted(time.Minute, 100, 3)
	other := &Requester{Tenant: "other"}
	known.Add(keyOfText("other"), other)
	greedy := &Requester{Tenant: "greedy"}
	for i := range 50 {
		known.Add(keyOfText(fmt.Sprint(i)), greedy)
		known.Get(keyOfText("0"))
	}
	if found, _ := known.Get(keyOfText("other")); found != other {
		t.Error("another tenant's token was evicted")
	}
	for key, want := range map[string]bool{"0": true, "49": true, "48": true, "47": false} {
		if found, _ := known.Get(keyOfText(key)); (found != nil) != want {
			t.Errorf("token %s is known: %t", key, !want)
		}
	}
}

// At the total limit, the tenant with the most tokens loses one.
func TestTheLargestTenantLosesAToken(t *testing.T) {
	t.Parallel()
	known := NewAccepted(time.Minute, 6, 4)
	for i := range 4 {
		known.Add(keyOfText(fmt.Sprintf("large%d", i)), &Requester{Tenant: "large"})
	}
	for i := range 2 {
		known.Add(keyOfText(fmt.Sprintf("small%d", i)), &Requester{Tenant: "small"})
	}
	known.Add(keyOfText("new"), &Requester{Tenant: "new"})
	if known.Len() != 6 {
		t.Errorf("%d tokens are known", known.Len())
	}
	for key, want := range map[string]bool{"large0": false, "large1": true, "small0": true, "small1": true, "new": true} {
		if found, _ := known.Get(keyOfText(key)); (found != nil) != want {
			t.Errorf("token %s is known: %t", key, !want)
		}
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	for username, want := range map[string]string{
		"system:serviceaccount:agents:builder": "system:serviceaccounts:agents",
		"system:serviceaccount:agents:other":   "system:serviceaccounts:agents",
		"system:serviceaccount:broken":         "system:serviceaccount:broken",
		"alice":                                "alice",
		"system:admin":                         "system:admin",
	} {
		if got := tenantOf(username); got != want {
			t.Errorf("%s belongs to %s, not %s", username, got, want)
		}
	}
}
