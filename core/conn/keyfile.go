package conn

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/youmark/pkcs8"
)

// maxFile is the largest file of certificates and keys that is read. The certificates that a system
// trusts take about 250 KB.
const maxFile = 1 << 20

// readFile reads a file of certificates or keys. A file larger than maxFile, such as a device that
// never ends, is an error.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return data, err
}

// loadKeyPair reads a file with the certificate, its chain, and the key, in any order.
func loadKeyPair(file, password string) (tls.Certificate, error) {
	data, err := readFile(file)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := findKey(data, password)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", file, err)
	}
	cert, err := tls.X509KeyPair(data, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", file, err)
	}
	return cert, nil
}

var (
	errNoPassword = errors.New("the key is encrypted: set " +
		"tlsCertificateKeyFilePassword")
	errWrongPassword = errors.New("the key cannot be decrypted with tlsCertificateKeyFilePassword")
)

// findKey returns the first private key among the PEM blocks, decrypted.
func findKey(data []byte, password string) ([]byte, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		// Encrypted PEM blocks are insecure by design, but such files exist.
		isEncrypted := x509.IsEncryptedPEMBlock(block) //nolint:staticcheck
		switch block.Type {
		case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY":
			if !isEncrypted {
				return pem.EncodeToMemory(block), nil
			}
			return decrypt(block, password, decryptTraditional)
		case "ENCRYPTED PRIVATE KEY":
			return decrypt(block, password, decryptPKCS8)
		}
	}
	return nil, errors.New("the file has no private key in PEM")
}

func decrypt(
	block *pem.Block, password string, with func(*pem.Block, string) (any, error),
) ([]byte, error) {
	if password == "" {
		return nil, errNoPassword
	}
	key, err := with(block, password)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// decryptTraditional decrypts a block with a DEK-Info header. One wrong password in 256 seems to
// fit, so the result must also parse as a key.
func decryptTraditional(block *pem.Block, password string) (any, error) {
	der, err := x509.DecryptPEMBlock(block, []byte(password)) //nolint:staticcheck // see findKey
	if errors.Is(err, x509.IncorrectPasswordError) {
		return nil, errWrongPassword
	}
	if err != nil {
		return nil, fmt.Errorf("the encrypted key cannot be read: %w", err)
	}
	var key any
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(der)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(der)
	default:
		key, err = x509.ParsePKCS8PrivateKey(der)
	}
	if err != nil {
		return nil, errWrongPassword
	}
	return key, nil
}

// decryptPKCS8 decrypts a PKCS #8 EncryptedPrivateKeyInfo, by PBES2 only.
func decryptPKCS8(block *pem.Block, password string) (key any, err error) {
	defer func() {
		if recover() != nil { // the library passes lengths to the cipher unchecked
			key, err = nil, errors.New("the encrypted key cannot be read: its parameters are "+
				"invalid")
		}
	}()
	key, _, err = pkcs8.ParsePrivateKey(block.Bytes, []byte(password))
	switch {
	case err == nil:
		return key, nil
	case err.Error() == "pkcs8: incorrect password": // the library has no type for it
		return nil, errWrongPassword
	default:
		return nil, fmt.Errorf("the encrypted key cannot be read: %w", err)
	}
}
