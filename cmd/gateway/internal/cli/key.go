package cli

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// keyBytes is the length of a new handle key.
const keyBytes = 32

// newKey runs the command key new.
func newKey(c call) error {
	var key [keyBytes]byte
	_, _ = rand.Read(key[:]) // never fails: crypto/rand ends the process instead
	_, err := fmt.Fprintln(c.stdout, base64.StdEncoding.EncodeToString(key[:]))
	return err
}
