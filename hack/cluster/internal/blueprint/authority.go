package blueprint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority signs certificates. Nothing is ever renewed.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// pair is a certificate and its key, PEM encoded.
type pair struct {
	cert, key []byte
}

// newAuthority makes a self-signed authority, and writes it as name.crt and name.key in dir.
func newAuthority(dir, name, commonName string) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, fmt.Errorf("generating the key of %s: %w", commonName, err)
	}
	signed, err := cert.NewSelfSignedCACert(cert.Config{CommonName: commonName}, key)
	if err != nil {
		return authority{}, fmt.Errorf("signing %s: %w", commonName, err)
	}
	own, err := encode(signed.Raw, key)
	if err != nil {
		return authority{}, err
	}
	return authority{cert: signed, key: key}, own.write(dir, name)
}

// issue signs a certificate that serves both as a client's and as a server's.
func (a authority) issue(c cert.Config) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("generating the key of %s: %w", c.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject:     pkix.Name{CommonName: c.CommonName, Organization: c.Organization},
		DNSNames:    c.AltNames.DNSNames,
		IPAddresses: c.AltNames.IPs,
		NotBefore:   a.cert.NotBefore,
		NotAfter:    a.cert.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing %s: %w", c.CommonName, err)
	}
	return encode(der, key)
}

func encode(der []byte, key *ecdsa.PrivateKey) (pair, error) {
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), key: text}, err
}

// write stores the pair as name.crt and name.key in dir. Only their owner may read keys.
func (p pair) write(dir, name string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, name+".crt"), p.cert, 0o644),
		os.WriteFile(filepath.Join(dir, name+".key"), p.key, 0o600),
	)
}
