package devcert

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Names of the authority's files; those of a node or client are its name with .pem and -key.pem.
const (
	CAFile    = "ca.pem"
	CAKeyFile = "ca-key.pem"
)

// validity of everything made here; long enough to try, short enough not to be forgotten.
const validity = 90 * 24 * time.Hour

// Options say what to make.
type Options struct {
	Dir   string   // made if missing
	Nodes []string // node ids, each a DNS label
	Hosts []string // more DNS names or IP addresses under which each node is reached
	// Clients are the names of people and processes that connect to nodes, each with all of Roles
	// ("viewer", "member:orders"), which are written into their certificates as URIs ("unisink:viewer").
	Clients []string
	Roles   []string
	// Valid is how long certificates are good; default 90 days. An authority made here is good for 90 days.
	Valid time.Duration
}

// CertFile is where the certificate of a node or client lies.
func CertFile(dir, name string) string { return filepath.Join(dir, name+".pem") }

// KeyFile is where the key of a node or client lies.
func KeyFile(dir, name string) string { return filepath.Join(dir, name+"-key.pem") }

// Make writes certificates and keys for nodes and clients, signed by the authority in Dir, which it
// makes if there is none. Those of nodes name the node's id, localhost, the loopback addresses and
// Hosts, and are good for clients and servers; those of clients name the roles. Files are readable by their owner alone. A file that
// exists is never overwritten: Make then writes nothing and names it.
func Make(o Options) error {
	if len(o.Nodes)+len(o.Clients) == 0 {
		return errors.New("make certificates: no node and no client is named")
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	seen := map[string]bool{}
	for _, name := range slices.Concat(o.Nodes, o.Clients) {
		if name == "" || name != filepath.Base(name) || name == "ca" {
			return fmt.Errorf("make certificates: %q cannot name a node or client", name)
		}
		if seen[name] {
			return fmt.Errorf("make certificates: %q is named twice", name)
		}
		seen[name] = true
		for _, file := range []string{CertFile(o.Dir, name), KeyFile(o.Dir, name)} {
			if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("make certificates: %s exists already; remove it, or choose another directory", file)
			}
		}
	}
	ca, err := authority(o.Dir)
	if err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	for _, node := range o.Nodes {
		if err := ca.issue(o, node); err != nil {
			return fmt.Errorf("make certificates: node %s: %w", node, err)
		}
	}
	for _, name := range o.Clients {
		if err := ca.issueClient(o, name); err != nil {
			return fmt.Errorf("make certificates: client %s: %w", name, err)
		}
	}
	return nil
}

type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// authority loads the one in dir, or makes it.
func authority(dir string) (issuer, error) {
	certFile, keyFile := filepath.Join(dir, CAFile), filepath.Join(dir, CAKeyFile)
	_, errCert := os.Lstat(certFile)
	_, errKey := os.Lstat(keyFile)
	if errors.Is(errCert, fs.ErrNotExist) && errors.Is(errKey, fs.ErrNotExist) {
		return makeAuthority(certFile, keyFile)
	}
	if err := errors.Join(errCert, errKey); err != nil {
		return issuer{}, fmt.Errorf("the authority is incomplete: %w", err)
	}
	return loadAuthority(certFile, keyFile)
}

func makeAuthority(certFile, keyFile string) (issuer, error) {
	template, err := template("unisink development authority", 0)
	if err != nil {
		return issuer{}, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	template.MaxPathLenZero = true
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return issuer{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return issuer{}, err
	}
	if err := write(certFile, keyFile, der, key); err != nil {
		return issuer{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return issuer{cert: cert, key: key}, err
}

func loadAuthority(certFile, keyFile string) (issuer, error) {
	certDER, err := readPEM(certFile, "CERTIFICATE")
	if err != nil {
		return issuer{}, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return issuer{}, fmt.Errorf("%s: %w", certFile, err)
	}
	keyDER, err := readPEM(keyFile, "EC PRIVATE KEY")
	if err != nil {
		return issuer{}, err
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	if err != nil {
		return issuer{}, fmt.Errorf("%s: %w", keyFile, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return issuer{}, fmt.Errorf("%s and %s do not belong together", certFile, keyFile)
	}
	return issuer{cert: cert, key: key}, nil
}

// issue makes one node's certificate.
func (ca issuer) issue(o Options, node string) error {
	template, err := template(node, o.Valid)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = []string{node, "localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, host := range o.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if !slices.Contains(o.Nodes, host) { // else one node could pass for another
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return ca.sign(o.Dir, node, template)
}

// issueClient makes one client's certificate. It has no DNS name, so it passes for no node.
func (ca issuer) issueClient(o Options, name string) error {
	template, err := template(name, o.Valid)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, role := range o.Roles {
		template.URIs = append(template.URIs, &url.URL{Scheme: "unisink", Opaque: role})
	}
	return ca.sign(o.Dir, name, template)
}

func (ca issuer) sign(dir, name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return err
	}
	return write(CertFile(dir, name), KeyFile(dir, name), der, key)
}

func template(name string, valid time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // clocks differ
		NotAfter:     time.Now().Add(cmp.Or(valid, validity)),
	}, nil
}

// write writes certificate and key, neither over an existing file.
func write(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeNew(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})); err != nil {
		return err
	}
	return writeNew(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

func readPEM(path, kind string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s holds no %s", path, kind)
	}
	return block.Bytes, nil
}
