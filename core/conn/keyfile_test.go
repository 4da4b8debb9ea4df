package conn_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/youmark/pkcs8"

	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/certtest"
)

const password = "hunter2"

// traditional encrypts a block as OpenSSL did before PKCS #8.
func traditional(t *testing.T, kind string, der []byte) *pem.Block {
	t.Helper()
	block, err := x509.EncryptPEMBlock( //nolint:staticcheck // what such files are
		rand.Reader, kind, der, []byte(password), x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	return block
}

func encrypted(t *testing.T, p *certtest.Pair, opts *pkcs8.Opts) *pem.Block {
	t.Helper()
	der, err := pkcs8.MarshalPrivateKey(p.Key, []byte(password), opts)
	if err != nil {
		t.Fatal(err)
	}
	return &pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: der}
}

func TestKeyFiles(t *testing.T) {
	p := certtest.Authority(t, certtest.ECDSA).Issue(t, "client")
	cert, plain := p.CertificateBlock(), p.KeyBlock(t)
	short := encrypted(t, p, nil)
	short.Bytes = truncate(t, short.Bytes)
	for _, tt := range []struct {
		name     string
		file     []*pem.Block
		password string
		want     string // in the error; "" for success
	}{
		{"in the clear", []*pem.Block{cert, plain}, "", ""},
		{"in the clear with a password", []*pem.Block{cert, plain}, password, ""},
		{"traditional", []*pem.Block{cert, traditional(t, "PRIVATE KEY", plain.Bytes)}, password, ""},
		{"traditional, no password", []*pem.Block{cert, traditional(t, "PRIVATE KEY", plain.Bytes)}, "", "set tlsCertificateKeyFilePassword"},
		{"traditional, wrong password", []*pem.Block{cert, traditional(t, "PRIVATE KEY", plain.Bytes)}, "wrong", "cannot be decrypted with"},
		{"traditional, no key inside", []*pem.Block{cert, traditional(t, "EC PRIVATE KEY", []byte("none"))}, password, "cannot be decrypted with"},
		{"PKCS #8", []*pem.Block{cert, encrypted(t, p, nil)}, password, ""},
		{"PKCS #8 with scrypt", []*pem.Block{cert, encrypted(t, p, &pkcs8.Opts{
			Cipher: pkcs8.AES128CBC, KDFOpts: pkcs8.ScryptOpts{
				SaltSize: 8, CostParameter: 1 << 10, BlockSize: 8, ParallelizationParameter: 1,
			},
		})}, password, ""},
		{"PKCS #8, no password", []*pem.Block{cert, encrypted(t, p, nil)}, "", "set tlsCertificateKeyFilePassword"},
		{"PKCS #8, wrong password", []*pem.Block{cert, encrypted(t, p, nil)}, "wrong", "cannot be decrypted with"},
		{"PKCS #8, cut off", []*pem.Block{cert, short}, password, "the encrypted key cannot be read"},
		{"PKCS #8, empty", []*pem.Block{cert, {Type: "ENCRYPTED PRIVATE KEY"}}, password, "the encrypted key cannot be read"},
		{"no key", []*pem.Block{cert}, "", "the file has no private key"},
		{"no certificate", []*pem.Block{plain}, "", "tlsCertificateKeyFile"},
		{"key of another", []*pem.Block{certtest.Authority(t, certtest.ECDSA).CertificateBlock(), plain}, "", "private key does not match public key"},
	} {
		_, err := conn.NewTLS(connstring.TLS{
			CertificateKeyFile:         certtest.File(t, "client.pem", tt.file...),
			CertificateKeyFilePassword: tt.password,
		})
		if (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: NewTLS() = %v, want %q", tt.name, err, tt.want)
		}
		if err != nil &&
			(strings.Contains(err.Error(), password) ||
				!strings.Contains(err.Error(), "client.pem")) {
			t.Errorf("%s: NewTLS() = %v, want the file's name and no secret", tt.name, err)
		}
	}
}

// truncate removes the last byte of the ciphertext, which ends the block, and corrects the
// lengths.
func truncate(t *testing.T, der []byte) []byte {
	t.Helper()
	const head = 4 // SEQUENCE with a length of two bytes
	length := len(der) - head - 1
	if der[0] != 0x30 || (der[1] != 0x82 && der[1] != 0x81) {
		t.Fatalf("bug: the key begins with % x", der[:4])
	}
	if der[1] == 0x81 {
		der[2]--
	} else {
		der[2], der[3] = byte(length>>8), byte(length)
	}
	i := strings.LastIndex(string(der), "\x04\x81") // OCTET STRING with a length of one byte
	if i < 0 {
		t.Fatal("bug: no ciphertext found")
	}
	der[i+2]--
	return der[:len(der)-1]
}

// TestKeyFilesOfOpenSSL reads files of OpenSSL's own making.
func TestKeyFilesOfOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	for _, algorithm := range []certtest.Algorithm{certtest.RSA, certtest.ECDSA} {
		p := certtest.Authority(t, algorithm).Issue(t, "client")
		plain := certtest.File(t, "plain.pem", p.KeyBlock(t))
		kind := map[certtest.Algorithm]string{certtest.RSA: "rsa", certtest.ECDSA: "ec"}[algorithm]
		for _, tt := range []struct {
			name string
			args []string
			want string
		}{
			{"PKCS #8", []string{"pkcs8", "-topk8", "-in", plain, "-passout", "pass:" + password}, ""},
			{"PKCS #8 with AES-128 and SHA-1", []string{
				"pkcs8", "-topk8", "-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA1", "-in", plain, "-passout", "pass:" + password,
			}, ""},
			{"PKCS #8 with scrypt", []string{"pkcs8", "-topk8", "-scrypt", "-in", plain, "-passout", "pass:" + password}, ""},
			{"PKCS #8 with PBES1", []string{
				"pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-in", plain, "-passout", "pass:" + password,
			}, "PBES2"},
			{"traditional", []string{kind, "-aes256", "-in", plain, "-passout", "pass:" + password}, ""},
		} {
			t.Run(algorithm.String()+" "+tt.name, func(t *testing.T) {
				args := tt.args
				if tt.name == "traditional" && algorithm == certtest.RSA {
					args = append(args, "-traditional")
				}
				key, err := exec.CommandContext(t.Context(), openssl, args...).Output()
				if err != nil {
					t.Skipf("openssl cannot make it: %v", err)
				}
				file := filepath.Join(t.TempDir(), "client.pem")
				if err := os.WriteFile(file,
					append(key, pem.EncodeToMemory(p.CertificateBlock())...), 0o600); err != nil {
					t.Fatal(err)
				}
				_, err = conn.NewTLS(connstring.TLS{
					CertificateKeyFile: file, CertificateKeyFilePassword: password,
				})
				if (err == nil) != (tt.want == "") ||
					err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("NewTLS() = %v, want %q", err, tt.want)
				}
			})
		}
	}
}

func TestNewTLSRefuses(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large.pem")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil { // sparse: like a device that never ends
		t.Fatal(err)
	}
	unreadable := certtest.File(t, "unreadable.pem",
		&pem.Block{Type: "CERTIFICATE", Bytes: []byte("garbage")})
	for name, tt := range map[string]struct {
		opt  connstring.TLS
		want string
	}{
		"no such CA file":            {connstring.TLS{CAFile: "/nowhere.pem"}, "tlsCAFile: open /nowhere.pem: no such file"},
		"CA file is a directory":     {connstring.TLS{CAFile: t.TempDir()}, "tlsCAFile: read "},
		"CA file is too large":       {connstring.TLS{CAFile: large}, "large.pem is larger than 1048576 bytes"},
		"key file is too large":      {connstring.TLS{CertificateKeyFile: large}, "large.pem is larger than 1048576 bytes"},
		"CA file is not PEM":         {connstring.TLS{CAFile: certtest.File(t, "empty.pem")}, "has no certificate in PEM"},
		"CA file with garbage in it": {connstring.TLS{CAFile: unreadable}, "has no certificate that can be read: x509: "},
		"no such key file":           {connstring.TLS{CertificateKeyFile: "/nowhere.pem"}, "tlsCertificateKeyFile: open /nowhere.pem: no such file"},
		"password alone":             {connstring.TLS{CertificateKeyFilePassword: password}, "needs tlsCertificateKeyFile"},
	} {
		_, err := conn.NewTLS(tt.opt)
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), password) {
			t.Errorf("%s: NewTLS() = %v, want %q and no secret", name, err, tt.want)
		}
	}
}
