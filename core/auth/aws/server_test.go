package aws_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/sigv4"
)

// server is the mechanism's server side, with STS in it: it knows the secrets and checks the signature itself.
type server struct {
	host  string
	known map[string]aws.Credentials
}

func newServer(known ...aws.Credentials) *server {
	s := &server{host: "sts.amazonaws.com", known: map[string]aws.Credentials{}}
	for _, c := range known {
		s.known[c.AccessKeyID] = c
	}
	return s
}

// authenticate plays a whole conversation.
func (s *server) authenticate(c auth.Conversation) (sigv4.Credential, error) {
	first, err := c.First()
	if err != nil {
		return sigv4.Credential{}, err
	}
	r, _ := bson.Raw(first).Lookup("r")
	p, _ := bson.Raw(first).Lookup("p")
	_, nonce, _ := r.Binary()
	if flag, _ := p.Int32(); flag != 'n' || len(nonce) != 32 {
		return sigv4.Credential{}, fmt.Errorf("the first message is %x", first)
	}
	nonce = append(slices.Clone(nonce), "the server's 32 bytes of a nonce."[:32]...)
	challenge := new(bson.Builder).Binary("s", 0, nonce).String("h", s.host).Finish()
	response, done, err := c.Next(challenge)
	if err != nil || !done {
		return sigv4.Credential{}, errors.Join(err, errors.New("the conversation is not done"))
	}
	return s.check(nonce, s.host, response)
}

// verify checks the response to a challenge.
func (s *server) verify(challenge, response []byte) error {
	n, _ := bson.Raw(challenge).Lookup("s")
	h, _ := bson.Raw(challenge).Lookup("h")
	_, nonce, _ := n.Binary()
	host, _ := h.Str()
	_, err := s.check(nonce, host, response)
	return err
}

func (s *server) check(nonce []byte, host string, response []byte) (sigv4.Credential, error) {
	field := func(name string) string {
		v, _ := bson.Raw(response).Lookup(name)
		text, _ := v.Str()
		return text
	}
	header := map[string]string{
		"authorization": field("a"), "x-amz-date": field("d"),
		"content-length": "43", "content-type": "application/x-www-form-urlencoded", "host": host,
		"x-mongodb-server-nonce": base64.StdEncoding.EncodeToString(nonce), "x-mongodb-gs2-cb-flag": "n",
	}
	signed := "content-length;content-type;host;x-amz-date;x-mongodb-gs2-cb-flag;x-mongodb-server-nonce"
	if bson.Raw(response).Has("t") {
		header["x-amz-security-token"] = field("t")
		signed = strings.Replace(signed, "x-amz-date;", "x-amz-date;x-amz-security-token;", 1)
	}
	c, err := sigv4.Verify(sigv4.Request{
		Method: "POST", Path: "/", Header: header, Body: "Action=GetCallerIdentity&Version=2011-06-15",
	}, func(id string) string { return s.known[id].SecretAccessKey })
	switch {
	case err != nil:
		return c, err
	case strings.Join(c.SignedHeaders, ";") != signed:
		return c, fmt.Errorf("the signed headers are %q", c.SignedHeaders)
	case field("t") != s.known[c.AccessKeyID].SessionToken:
		return c, fmt.Errorf("the session token is %q", field("t"))
	}
	return c, nil
}
