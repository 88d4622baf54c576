package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// serverTLS shows the certificate of -cert, or one made for this process. The
// fingerprint is what a client can give to -fingerprint.
func serverTLS(o *options) (conf *tls.Config, fingerprint string, err error) {
	var cert tls.Certificate
	if o.cert != "" {
		if cert, err = tls.LoadX509KeyPair(o.cert, o.key); err != nil {
			err = fmt.Errorf("-cert %s -key %s: %w", o.cert, o.key, err)
		}
	} else {
		cert, err = selfSigned(o.addr)
	}
	if err != nil {
		return nil, "", err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{alpn},
		MinVersion:   tls.VersionTLS13,
	}, certFingerprint(cert.Certificate[0]), nil
}

func certFingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// selfSigned makes a certificate for a server that listens on addr.
func selfSigned(addr string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "quicperf"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	host, _, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else if host != "" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// clientTLS decides whom the client believes: the one with the fingerprint; or
// whoever the authority of -ca signed; or, on loopback and with -insecure,
// anyone; else whoever the system's authorities signed.
func clientTLS(o *options, addr *net.UDPAddr) (*tls.Config, error) {
	host, _, _ := net.SplitHostPort(o.server)
	conf := &tls.Config{
		ServerName: host,
		NextProtos: []string{alpn},
		MinVersion: tls.VersionTLS13,
	}
	switch {
	case o.fingerprint != "":
		want := strings.ToLower(strings.ReplaceAll(o.fingerprint, ":", ""))
		if b, err := hex.DecodeString(want); err != nil || len(b) != sha256.Size {
			return nil, errors.New("-fingerprint: want the 64 hexadecimal digits that the server prints")
		}
		conf.InsecureSkipVerify = true // VerifyConnection does it instead
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			if got := certFingerprint(s.PeerCertificates[0].Raw); got != want {
				return &tlsError{text: "the server's certificate has fingerprint " + got + ", not the given one"}
			}
			return nil
		}
	case o.ca != "":
		pem, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no PEM certificate in it", o.ca)
		}
	case o.insecure || addr.IP.IsLoopback():
		conf.InsecureSkipVerify = true
	}
	return conf, nil
}
