// Package aws implements the mechanism MONGODB-AWS: the server asks the client to sign a
// GetCallerIdentity request to AWS's security token service (STS) with its credentials, and asks
// STS whose they are. Conversation computes the messages, without I/O; Source obtains the
// credentials from the environment or over HTTP, and caches those of an endpoint.
package aws

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	awsv4 "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	nonceSize  = 32
	noBinding  = 'n' // channel binding is not offered
	stsRequest = "Action=GetCallerIdentity&Version=2011-06-15"
)

// Nonce holds the client's random part of a conversation. It must come from a cryptographic
// generator.
type Nonce [nonceSize]byte

// Conversation carries out one authentication. It has one owner.
type Conversation struct {
	credentials Credentials
	nonce       Nonce
	now         time.Time
}

// NewConversation returns a conversation that signs with the credentials at the time now.
func NewConversation(c Credentials, nonce Nonce, now time.Time) *Conversation {
	return &Conversation{credentials: c, nonce: nonce, now: now}
}

// Format keeps the secrets out of every verb.
func (c *Conversation) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "aws.Conversation(%v)", c.credentials)
}

// First returns the client's first message: its nonce.
func (c *Conversation) First() ([]byte, error) {
	b := new(bson.Builder).Binary("r", bson.SubtypeGeneric, c.nonce[:]).Int32("p", noBinding)
	return b.Finish(), nil
}

// Next returns the client's answer to the server's message: the signature. The client has nothing
// to say after it.
func (c *Conversation) Next(challenge []byte) (response []byte, done bool, err error) {
	nonce, host, err := parseChallenge(challenge)
	if err != nil {
		return nil, false, err
	}
	if len(nonce) != 2*nonceSize {
		err := fmt.Errorf("the server's nonce has %d bytes instead of %d", len(nonce), 2*nonceSize)
		return nil, false, err
	}
	if !bytes.Equal(nonce[:nonceSize], c.nonce[:]) {
		return nil, false, errors.New("the server's nonce does not begin with the client's")
	}
	authorization, date, err := sign(c.credentials, host, nonce, c.now)
	if err != nil {
		return nil, false, err
	}
	b := new(bson.Builder).String("a", authorization).String("d", date)
	if c.credentials.SessionToken != "" {
		b.String("t", c.credentials.SessionToken)
	}
	return b.Finish(), true, nil
}

// parseChallenge reads the server's message: {s: nonce, h: host}.
func parseChallenge(challenge []byte) (nonce []byte, host string, err error) {
	doc := bson.Raw(challenge)
	if err := doc.Validate(); err != nil {
		return nil, "", fmt.Errorf("the server's message: %w", err)
	}
	s, _ := doc.Lookup("s")
	h, _ := doc.Lookup("h")
	subtype, nonce, ok := s.Binary()
	if !ok || subtype != bson.SubtypeGeneric {
		return nil, "", errors.New("the server's message has no nonce (s)")
	}
	if host, ok = h.Str(); !ok {
		return nil, "", errors.New("the server's message has no STS host (h)")
	}
	return nonce, host, nil
}

// sign returns the Authorization and the X-Amz-Date header of a GetCallerIdentity request
// (Signature Version 4).
func sign(
	c Credentials, host string, nonce []byte, now time.Time,
) (authorization, date string, err error) {
	where, err := region(host)
	if err != nil {
		return "", "", err
	}
	req := &http.Request{
		Method:        http.MethodPost,
		URL:           &url.URL{Scheme: "https", Host: host, Path: "/"},
		Host:          host,
		ContentLength: int64(len(stsRequest)),
		Header: http.Header{
			"Content-Type":           {"application/x-www-form-urlencoded"},
			"X-Mongodb-Server-Nonce": {base64.StdEncoding.EncodeToString(nonce)},
			"X-Mongodb-Gs2-Cb-Flag":  {string(noBinding)},
		},
	}
	hash := sha256.Sum256([]byte(stsRequest))
	credentials := awsv4.Credentials{
		AccessKeyID:     c.AccessKeyID,
		SecretAccessKey: c.SecretAccessKey,
		SessionToken:    c.SessionToken,
	}
	// The signer does no I/O: its context is for its log, which is off.
	err = v4.NewSigner().SignHTTP(context.Background(), credentials, req,
		hex.EncodeToString(hash[:]), "sts", where, now)
	if err != nil {
		return "", "", fmt.Errorf("sign: %w", err)
	}
	return req.Header.Get("Authorization"), req.Header.Get("X-Amz-Date"), nil
}
