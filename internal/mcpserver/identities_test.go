package mcpserver

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func keyOfText(text string) (key tokenKey) {
	copy(key[:], text)
	return key
}

func TestIdentitiesAreFreshThenKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		known := newIdentities(10*time.Second, 10, 10)
		user := &identity{username: "u", tenant: "u"}
		expect := func(wantKnown, wantFresh bool) {
			t.Helper()
			if found, fresh := known.get(keyOfText("a")); (found == user) != wantKnown || fresh != wantFresh {
				t.Errorf("got %v, fresh %t", found, fresh)
			}
		}
		expect(false, false)
		known.add(keyOfText("a"), user)
		expect(true, true)
		time.Sleep(10 * time.Second)
		expect(true, false)
		known.add(keyOfText("a"), user)
		expect(true, true)
		time.Sleep(time.Hour)
		expect(false, false)
		known.add(keyOfText("a"), user)
		known.forget(keyOfText("a"))
		known.forget(keyOfText("a"))
		expect(false, false)
		if len(known.entries) != 0 || len(known.tenants) != 0 {
			t.Errorf("left: %v, %v", known.entries, known.tenants)
		}
	})
}

// A tenant with any number of tokens evicts its own, the least recently used first.
func TestATenantEvictsItsOwnTokens(t *testing.T) {
	t.Parallel()
	known := newIdentities(time.Minute, 100, 3)
	other := &identity{username: "other", tenant: "other"}
	known.add(keyOfText("other"), other)
	greedy := &identity{username: "greedy", tenant: "greedy"}
	for i := range 50 {
		known.add(keyOfText(fmt.Sprint(i)), greedy)
		known.get(keyOfText("0"))
	}
	if found, _ := known.get(keyOfText("other")); found != other {
		t.Error("another tenant's token was evicted")
	}
	for key, want := range map[string]bool{"0": true, "49": true, "48": true, "47": false} {
		if found, _ := known.get(keyOfText(key)); (found != nil) != want {
			t.Errorf("token %s is known: %t", key, !want)
		}
	}
}

// At the total limit, the tenant with the most tokens loses one.
func TestTheLargestTenantLosesAToken(t *testing.T) {
	t.Parallel()
	known := newIdentities(time.Minute, 6, 4)
	for i := range 4 {
		known.add(keyOfText(fmt.Sprintf("large%d", i)), &identity{tenant: "large"})
	}
	for i := range 2 {
		known.add(keyOfText(fmt.Sprintf("small%d", i)), &identity{tenant: "small"})
	}
	known.add(keyOfText("new"), &identity{tenant: "new"})
	if len(known.entries) != 6 {
		t.Errorf("%d tokens are known", len(known.entries))
	}
	for key, want := range map[string]bool{"large0": false, "large1": true, "small0": true, "small1": true, "new": true} {
		if found, _ := known.get(keyOfText(key)); (found != nil) != want {
			t.Errorf("token %s is known: %t", key, !want)
		}
	}
}

func TestRejectionsAreRememberedBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRejections(5*time.Second, 10, 10)
		r.add("a", keyOfText("x"))
		if !r.has("a", keyOfText("x")) || r.has("a", keyOfText("y")) || r.has("b", keyOfText("x")) {
			t.Error("rejections are kept for other tokens or sources")
		}
		time.Sleep(5 * time.Second)
		if r.has("a", keyOfText("x")) {
			t.Error("a rejection is kept for too long")
		}
	})
}

// However many tokens one source sends, it evicts its own rejections, in bounded memory.
func TestRejectionsOfASourceAreItsOwn(t *testing.T) {
	t.Parallel()
	r := newRejections(time.Hour, 10, 4)
	r.add("quiet", keyOfText("x"))
	for i := range 1000 {
		r.add("flood", keyOfText(fmt.Sprint(i)))
	}
	r.add("flood", keyOfText("999"))
	if !r.has("quiet", keyOfText("x")) {
		t.Error("another source's rejection was evicted")
	}
	for key, want := range map[string]bool{"999": true, "996": true, "995": false, "0": false} {
		if r.has("flood", keyOfText(key)) != want {
			t.Errorf("token %s is remembered: %t", key, !want)
		}
	}
	found, _ := r.sources.Get("flood")
	if own := found.(*rejected); len(own.tokens) != 4 || len(own.order) != 4 {
		t.Errorf("%d tokens in %d places", len(own.tokens), len(own.order))
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
