package dispatch

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Identity is the operator's root of trust: an authority whose certificate every runner is given, and two
// secrets, derived from the same key: one makes tokens and seals, one encrypts. All replicas share one, and
// it outlives them: a runner that was started by one operator process trusts the next.
type Identity struct {
	key           *ecdsa.PrivateKey
	cert          *x509.Certificate
	secret        []byte
	encryptionKey []byte
}

// validity of the authority and of the certificates that it issues. Machines' clocks may differ: both begin
// two days before they are made.
const (
	authorityYears = 30
	clockSlack     = 48 * time.Hour
)

// encryptionKeySize selects AES-256.
const encryptionKeySize = 32

// NewIdentity makes one.
func NewIdentity(now time.Time) (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the operator's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "toolcall-operator"},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.AddDate(authorityYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make the operator's authority: %w", err)
	}
	return newIdentity(key, der)
}

func newIdentity(key *ecdsa.PrivateKey, der []byte) (*Identity, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the operator's authority: %w", err)
	}
	raw, err := key.Bytes()
	if err != nil {
		return nil, fmt.Errorf("read the operator's key: %w", err)
	}
	secret, err := hkdf.Key(sha256.New, raw, nil, "toolcall.dev/operator tokens and seals v1", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the operator's secret: %w", err)
	}
	encryptionKey, err := hkdf.Key(sha256.New, raw, nil, "toolcall.dev/operator encryption v1", encryptionKeySize)
	if err != nil {
		return nil, fmt.Errorf("derive the operator's encryption key: %w", err)
	}
	return &Identity{key: key, cert: cert, secret: secret, encryptionKey: encryptionKey}, nil
}

// ParseIdentity reads what Encode wrote.
func ParseIdentity(certPEM, keyPEM []byte) (*Identity, error) {
	cert, _ := pem.Decode(certPEM)
	key, _ := pem.Decode(keyPEM)
	if cert == nil || key == nil {
		return nil, errors.New("no PEM block in the operator's certificate or key")
	}
	private, err := x509.ParsePKCS8PrivateKey(key.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the operator's key: %w", err)
	}
	ec, ok := private.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the operator's key is a %T, not an ECDSA key", private)
	}
	return newIdentity(ec, cert.Bytes)
}

// Encode gives the certificate and the key in PEM.
func (i *Identity) Encode() (certPEM, keyPEM []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the operator's key: %w", err)
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
	return certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// CA is the authority's certificate as the runner's variable carries it.
func (i *Identity) CA() string { return base64.StdEncoding.EncodeToString(i.cert.Raw) }

// Authority is the certificate that vouches for all that Issue makes.
func (i *Identity) Authority() *x509.Certificate { return i.cert }

// Issue makes a key and a certificate of it. The template says for what names and uses, and until when.
func (i *Identity) Issue(template *x509.Certificate, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	leaf := *template
	leaf.SerialNumber = big.NewInt(now.UnixNano())
	leaf.NotBefore = now.Add(-clockSlack)
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, &leaf, i.cert, &key.PublicKey, i.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der, i.cert.Raw}, PrivateKey: key}, nil
}

// ServerTLS issues a certificate and gives the configuration of the listener. Runners bring certificates
// of their own making: any is taken, its key is what counts.
func (i *Identity) ServerTLS(now time.Time) (*tls.Config, error) {
	certificate, err := i.Issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: wire.ServerName},
		DNSNames:    []string{wire.ServerName},
		NotAfter:    i.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, now)
	if err != nil {
		return nil, fmt.Errorf("make the listener's certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAnyClientCert,
		// A runner makes a new connection seldom, and each ticket costs both ends.
		SessionTicketsDisabled: true,
	}, nil
}

// Token is what opens the first connection of a Job's runner. It follows from the Job alone, so that it can
// be made again after a crash, and checked without looking anything up. Records says whether the Job is still there.
func (i *Identity) Token(namespace, job, jobUID string) string {
	return i.mac("token", namespace, job, jobUID)
}

// CheckToken checks that a hello's token belongs to the Job that it names.
func (i *Identity) CheckToken(h wire.Hello) bool {
	want := i.Token(h.Namespace, h.Job, h.JobUID)
	return h.JobUID != "" && hmac.Equal([]byte(h.Token), []byte(want))
}

// Seal is a code over data that the operator stores where others may write. Parts can't run into each other.
func (i *Identity) Seal(parts ...string) string { return i.mac(append([]string{"seal"}, parts...)...) }

// CheckSeal says whether a seal was made by this identity over these parts.
func (i *Identity) CheckSeal(seal string, parts ...string) bool {
	return hmac.Equal([]byte(seal), []byte(i.Seal(parts...)))
}

func (i *Identity) mac(parts ...string) string {
	mac := hmac.New(sha256.New, i.secret)
	mac.Write(encodeParts(parts))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Encrypt hides and authenticates data that the operator stores where others may read or write. Decrypt needs the same
// context. The result is base64 text.
func (i *Identity) Encrypt(plain []byte, context ...string) (string, error) {
	aead, err := i.aead()
	if err != nil {
		return "", err
	}
	return sealedEncoding.EncodeToString(aead.Seal(nil, nil, plain, encodeParts(context))), nil //nolint:gosec // the nonce is random: cipher.NewGCMWithRandomNonce makes it
}

// Decrypt returns what Encrypt of the same identity hid for the same context. It fails for everything else.
func (i *Identity) Decrypt(sealed string, context ...string) ([]byte, error) {
	aead, err := i.aead()
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(sealed, "\r\n") {
		// encoding/base64 skips line breaks, so that one plain text would have many encodings.
		return nil, errNotSealed
	}
	raw, err := sealedEncoding.DecodeString(sealed)
	if err != nil {
		return nil, errNotSealed
	}
	plain, err := aead.Open(nil, nil, raw, encodeParts(context))
	if err != nil {
		return nil, errNotSealed
	}
	return plain, nil
}

// errNotSealed says no more than that: which check failed is of use to an attacker only.
var errNotSealed = errors.New("the data was not encrypted by this operator for this purpose")

// sealedEncoding is strict: an encoding with other trailing bits is an error, not the same data.
var sealedEncoding = base64.RawURLEncoding.Strict()

// aead is AES-256-GCM that puts a random nonce before the cipher text.
func (i *Identity) aead() (cipher.AEAD, error) {
	block, err := aes.NewCipher(i.encryptionKey)
	if err != nil {
		return nil, fmt.Errorf("use the operator's encryption key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("use the operator's encryption key: %w", err)
	}
	return aead, nil
}

// encodeParts writes each part with its length, so that parts can't run into each other.
func encodeParts(parts []string) []byte {
	var b []byte
	for _, part := range parts {
		b = fmt.Appendf(b, "%d:%s", len(part), part)
	}
	return b
}
