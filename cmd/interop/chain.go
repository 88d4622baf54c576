package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// makeChain makes a chain of n certificates like the runner's, and writes it to dir as
// cert.pem and priv.key. In a chain of more than one, the server's certificate has names
// that make it some 5 KB large. The pool trusts the authority, which is not in the chain.
func makeChain(dir string, n int) (tls.Certificate, *x509.CertPool, error) {
	var (
		chain     tls.Certificate
		parent    *x509.Certificate
		parentKey *ecdsa.PrivateKey
		pool      = x509.NewCertPool()
	)
	for i := range n + 1 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return chain, nil, err
		}
		c := &x509.Certificate{
			SerialNumber:          big.NewInt(int64(i + 1)),
			Subject:               pkix.Name{Organization: []string{fmt.Sprintf("interop intermediate %d", i)}},
			NotBefore:             time.Now().Add(-time.Hour),
			NotAfter:              time.Now().AddDate(0, 0, 10),
			IsCA:                  i < n,
			BasicConstraintsValid: true,
		}
		if i == n {
			c.Subject.Organization[0] = "interop leaf"
			c.DNSNames = []string{"server", "server4", "server6", "server46", "localhost"}
			c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
			for j := range 20 {
				if n > 1 {
					c.DNSNames = append(c.DNSNames, fmt.Sprintf("%s%02d.example", strings.Repeat("ballast", 30), j))
				}
			}
		}
		if i == 0 {
			c.Subject.Organization[0] = "interop root"
			parent, parentKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
		if err != nil {
			return chain, nil, err
		}
		if parent, err = x509.ParseCertificate(der); err != nil {
			return chain, nil, err
		}
		parentKey = key
		if i == 0 {
			pool.AddCert(parent)
			continue
		}
		chain.Certificate = append([][]byte{der}, chain.Certificate...)
	}
	chain.PrivateKey = parentKey

	var pems []byte
	for _, der := range chain.Certificate {
		pems = append(pems, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	key, err := x509.MarshalPKCS8PrivateKey(parentKey)
	if err != nil {
		return chain, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "cert.pem"), pems, 0o644); err != nil {
		return chain, nil, err
	}
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	return chain, pool, os.WriteFile(filepath.Join(dir, "priv.key"), key, 0o600)
}
