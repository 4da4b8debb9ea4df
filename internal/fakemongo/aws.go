package fakemongo

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/sigv4"
)

// AWS plays the server's side of MONGODB-AWS, with AWS's security token service in it: it knows the
// secrets, and checks signatures itself. Its methods may be called at any time.
type AWS struct {
	Host string // of the token service; "" stands for sts.amazonaws.com

	mu   sync.Mutex
	keys map[string]AWSKey // by access key id; guarded by mu
}

// AWSKey holds what belongs to an access key id. Keys that are not temporary have no token.
type AWSKey struct{ Secret, Token string }

// Add makes a key known.
func (a *AWS) Add(id string, k AWSKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keys == nil {
		a.keys = map[string]AWSKey{}
	}
	a.keys[id] = k
}

func (a *AWS) key(id string) AWSKey {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys[id]
}

// SASL returns what Auth.SASL wants for MONGODB-AWS.
func (a *AWS) SASL(*Command) SASL { return a.Conversation() }

// Conversation begins a conversation.
func (a *AWS) Conversation() *AWSConversation { return &AWSConversation{server: a} }

// AWSConversation plays the server's side of one conversation.
type AWSConversation struct {
	Credential sigv4.Credential // that the client has signed with

	server    *AWS
	challenge bson.Raw
}

// Username returns the access key id.
func (c *AWSConversation) Username() string { return c.Credential.AccessKeyID }

// Step takes the client's nonce, and then its signature.
func (c *AWSConversation) Step(payload []byte) (response []byte, done bool, err error) {
	if c.challenge == nil {
		c.challenge, err = c.server.challenge(payload)
		return c.challenge, false, err
	}
	c.Credential, err = c.server.Verify(c.challenge, payload)
	return nil, err == nil, err
}

func (a *AWS) challenge(first []byte) (bson.Raw, error) {
	_, nonce, _ := field(first, "r").Binary()
	if flag, _ := field(first, "p").Int32(); flag != 'n' || len(nonce) != 32 {
		return nil, fmt.Errorf("the first message is %x", first)
	}
	host := a.Host
	if host == "" {
		host = "sts.amazonaws.com"
	}
	nonce = append(slices.Clone(nonce), bytes.Repeat([]byte{'s'}, 32)...)
	return bson.NewBuilder(nil).Binary("s", 0, nonce).String("h", host).Finish(), nil
}

// Verify checks a client's answer to a challenge.
func (a *AWS) Verify(challenge, answer []byte) (sigv4.Credential, error) {
	_, nonce, _ := field(challenge, "s").Binary()
	header := map[string]string{
		"content-length": "43", "content-type": "application/x-www-form-urlencoded",
		"x-mongodb-server-nonce": base64.StdEncoding.EncodeToString(nonce),
		"x-mongodb-gs2-cb-flag":  "n",
	}
	header["host"], _ = field(challenge, "h").Str()
	header["authorization"], _ = field(answer, "a").Str()
	header["x-amz-date"], _ = field(answer, "d").Str()
	signed := "content-length;content-type;host;x-amz-date;" +
		"x-mongodb-gs2-cb-flag;x-mongodb-server-nonce"
	token, temporary := field(answer, "t").Str()
	if temporary {
		header["x-amz-security-token"] = token
		signed = strings.Replace(signed, "x-amz-date;", "x-amz-date;x-amz-security-token;", 1)
	}
	c, err := sigv4.Verify(sigv4.Request{
		Method: "POST", Path: "/", Header: header,
		Body: "Action=GetCallerIdentity&Version=2011-06-15",
	}, func(id string) string { return a.key(id).Secret })
	switch {
	case err != nil:
		return c, err
	case strings.Join(c.SignedHeaders, ";") != signed:
		return c, fmt.Errorf("the signed headers are %q", c.SignedHeaders)
	case token != a.key(c.AccessKeyID).Token:
		return c, errors.New("the session token is another key's")
	}
	return c, nil
}
