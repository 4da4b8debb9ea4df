package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Credentials holds what signs one authentication. Printing it shows neither secret nor token.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string    // of temporary credentials; else empty
	Expires         time.Time // zero where it is not known
}

// Provider obtains credentials in a way of the application's own. It is asked for each connection,
// by several goroutines at a time, and caches by itself.
type Provider interface {
	Credentials(ctx context.Context) (Credentials, error)
}

// check reports whether the combination is one that can sign.
func (c Credentials) check() error {
	switch {
	case c.AccessKeyID == "" && c.SecretAccessKey == "":
		return errors.New("there is no access key id and no secret access key")
	case c.AccessKeyID == "":
		return errors.New("there is a secret access key but no access key id")
	case c.SecretAccessKey == "":
		return errors.New("there is an access key id but no secret access key")
	}
	return nil
}

// String names the key without its secret.
func (c Credentials) String() string { return fmt.Sprintf("aws.Credentials(%q)", c.AccessKeyID) }

// Format keeps the secrets out of every verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }
