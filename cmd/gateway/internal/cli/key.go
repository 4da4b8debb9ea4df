package cli

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/service/caller"
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

func apiKeyFlags(flags *pflag.FlagSet) {
	flags.String("principal", "", "`name` of the client, in logs and in the list of cursors")
	flags.Duration("expires", 0, "`time` for which the key is valid, such as 8760h; without it "+
		"the key is valid until its line is removed")
}

// newAPIKey runs the command key api new.
func newAPIKey(c call) error {
	principal, err := c.flags.GetString("principal")
	if err != nil {
		return err
	}
	lifetime, err := c.flags.GetDuration("expires")
	if err != nil {
		return err
	}
	var expires time.Time
	switch {
	case principal == "":
		return &usageError{"key api new: --principal is missing"}
	case lifetime < 0:
		return &usageError{"key api new: --expires must not be negative"}
	case lifetime > 0:
		expires = time.Now().Add(lifetime)
	}
	key, line, err := caller.NewKey(principal, expires)
	if err != nil {
		return &usageError{"key api new: --principal: " + err.Error()}
	}
	_, err = fmt.Fprintf(c.stdout, "key   %s\nline  %s\n", key, line)
	return err
}
