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
const maxFile = 4 << 20

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

// loadKeyPair reads a file that has the certificate, those above it, and the key, which may stand anywhere in it.
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
	errNoPassword    = errors.New("the key is encrypted and tlsCertificateKeyFilePassword is not given")
	errWrongPassword = errors.New("the key cannot be decrypted with tlsCertificateKeyFilePassword")
)

// findKey gives the first private key among the PEM blocks, in the clear.
func findKey(data []byte, password string) ([]byte, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		isEncrypted := x509.IsEncryptedPEMBlock(block) //nolint:staticcheck // insecure by its design, and what such files are
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
	return nil, errors.New("there is no private key")
}

func decrypt(block *pem.Block, password string, with func(*pem.Block, string) (any, error)) ([]byte, error) {
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

// decryptTraditional decrypts what has a DEK-Info header. One wrong password in 256 seems to fit, so that what comes out
// has to be a key, too.
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

// decryptPKCS8 decrypts what PKCS #8 calls an EncryptedPrivateKeyInfo, by PBES2 only.
func decryptPKCS8(block *pem.Block, password string) (key any, err error) {
	defer func() {
		if recover() != nil { // the library does not check the lengths that it hands to the cipher
			key, err = nil, errors.New("the encrypted key cannot be read: its parameters do not fit")
		}
	}()
	key, _, err = pkcs8.ParsePrivateKey(block.Bytes, []byte(password))
	switch {
	case err == nil:
		return key, nil
	case err.Error() == "pkcs8: incorrect password": // it has no type
		return nil, errWrongPassword
	default:
		return nil, fmt.Errorf("the encrypted key cannot be read: %w", err)
	}
}
