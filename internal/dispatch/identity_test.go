package dispatch_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

func TestTheIdentityOutlivesTheOperator(t *testing.T) {
	identity := newIdentity(t)
	cert, key, err := identity.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := dispatch.ParseIdentity(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if identity.Token("a", "b", "c") != again.Token("a", "b", "c") || identity.CA() != again.CA() {
		t.Error("the identity that was read back is another one")
	}
	env := podEnv(&operator{identity: identity}, "job")
	next := startOperator(t, again)
	env[wire.EnvEndpoints] = next.address
	connect(t, runnerOf(t, env), servingC1(theCall))
	if owner, _ := next.event(t).Owner(); owner != theCall {
		t.Error("the next operator doesn't know the call")
	}
	for _, broken := range [][2][]byte{{nil, key}, {cert, nil}, {cert, []byte("x")}, {key, cert}} {
		if _, err := dispatch.ParseIdentity(broken[0], broken[1]); err == nil {
			t.Error("a broken identity was taken")
		}
	}
}

func TestASealCannotBeMovedOrMade(t *testing.T) {
	identity := newIdentity(t)
	seal := identity.Seal("ns", "job", "uid", "plan")
	if !identity.CheckSeal(seal, "ns", "job", "uid", "plan") {
		t.Error("the seal doesn't hold for what it was made over")
	}
	for _, parts := range [][]string{{"ns", "job", "uid", "plan2"}, {"nsj", "ob", "uid", "plan"}, {"ns", "job", "uid"}, {"ns", "job", "uid", "plan", ""}} {
		if identity.CheckSeal(seal, parts...) {
			t.Errorf("the seal holds for %q", parts)
		}
	}
	if newIdentity(t).CheckSeal(seal, "ns", "job", "uid", "plan") {
		t.Error("another operator's seal holds")
	}
	if identity.CheckSeal(identity.Token("ns", "job", "uid"), "ns", "job", "uid") {
		t.Error("a token is taken for a seal")
	}
}

func TestDecryptReturnsWhatWasEncrypted(t *testing.T) {
	t.Parallel()
	identity := newIdentity(t)
	for name, plain := range map[string][]byte{
		"nothing":    nil,
		"empty":      {},
		"text":       []byte(`{"decision":"run"}`),
		"zero bytes": make([]byte, 100),
		"4 MiB":      bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, context := range [][]string{nil, {""}, {"ns", "call", "uid"}, {strings.Repeat("long", 1<<16)}} {
				sealed, err := identity.Encrypt(plain, context...)
				if err != nil {
					t.Fatal(err)
				}
				got, err := identity.Decrypt(sealed, context...)
				if err != nil || !bytes.Equal(got, plain) {
					t.Errorf("context of %d parts: got %d bytes, %v; want %d bytes", len(context), len(got), err, len(plain))
				}
			}
		})
	}
}

func TestEncryptionShowsNothing(t *testing.T) {
	t.Parallel()
	identity := newIdentity(t)
	first, err := identity.Encrypt([]byte("secret value"), "uid")
	if err != nil {
		t.Fatal(err)
	}
	second, err := identity.Encrypt([]byte("secret value"), "uid")
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Error("the same data encrypts to the same text: the nonce is not random")
	}
	raw, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil {
		t.Fatalf("not base64: %v", err)
	}
	if bytes.Contains(raw, []byte("secret")) {
		t.Error("the data is readable")
	}
}

func TestDecryptNeedsTheSameContextAndIdentity(t *testing.T) {
	t.Parallel()
	identity := newIdentity(t)
	sealed, err := identity.Encrypt([]byte("decision"), "ns", "call", "uid")
	if err != nil {
		t.Fatal(err)
	}
	for _, context := range [][]string{
		nil, {}, {"ns"}, {"ns", "call"}, {"ns", "call", "uid", ""}, {"ns", "call", "uid2"}, {"nsc", "all", "uid"},
		{"nscalluid"}, {"call", "ns", "uid"}, {"ns4:call", "uid"}, {"2:ns4:call3:uid"},
	} {
		if plain, err := identity.Decrypt(sealed, context...); err == nil {
			t.Errorf("context %q: got %q", context, plain)
		}
	}
	if plain, err := newIdentity(t).Decrypt(sealed, "ns", "call", "uid"); err == nil {
		t.Errorf("another identity reads %q", plain)
	}
	cert, key, err := identity.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := dispatch.ParseIdentity(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := again.Decrypt(sealed, "ns", "call", "uid"); err != nil || string(plain) != "decision" {
		t.Errorf("the same identity, read back: got %q, %v", plain, err)
	}
}

func TestDecryptRefusesWhatWasChanged(t *testing.T) {
	t.Parallel()
	identity := newIdentity(t)
	sealed, err := identity.Encrypt([]byte("decision"), "uid")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(raw) {
		changed := bytes.Clone(raw)
		changed[bit/8] ^= 1 << (bit % 8)
		if plain, err := identity.Decrypt(base64.RawURLEncoding.EncodeToString(changed), "uid"); err == nil {
			t.Fatalf("with bit %d changed: got %q", bit, plain)
		}
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ \n"
	for at := range len(sealed) {
		for _, c := range alphabet {
			changed := sealed[:at] + string(c) + sealed[at+1:]
			if plain, err := identity.Decrypt(changed, "uid"); changed != sealed && err == nil {
				t.Fatalf("with character %d as %q: got %q", at, c, plain)
			}
		}
	}
	for name, changed := range map[string]string{
		"nothing":           "",
		"one byte":          "AA",
		"a nonce alone":     sealed[:16],
		"cut at the end":    sealed[:len(sealed)-2],
		"cut at the start":  sealed[2:],
		"longer":            sealed + "AA",
		"a line break":      sealed[:10] + "\n" + sealed[10:],
		"a line break last": sealed + "\r\n",
		"twice":             sealed + sealed,
		"a seal":            identity.Seal("uid"),
		"a token":           identity.Token("a", "b", "c"),
		"huge":              strings.Repeat("A", 4<<20),
	} {
		if plain, err := identity.Decrypt(changed, "uid"); err == nil {
			t.Errorf("%s: got %q", name, plain)
		}
	}
}
