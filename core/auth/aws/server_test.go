package aws_test

import (
	"errors"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/sigv4"
)

// newServer returns the mechanism's server side, which knows the credentials.
func newServer(known ...aws.Credentials) *fakemongo.AWS {
	s := new(fakemongo.AWS)
	for _, c := range known {
		know(s, c)
	}
	return s
}

func know(s *fakemongo.AWS, c aws.Credentials) {
	s.Add(c.AccessKeyID, fakemongo.AWSKey{Secret: c.SecretAccessKey, Token: c.SessionToken})
}

// converse plays a whole conversation.
func converse(s *fakemongo.AWS, c auth.Conversation) (sigv4.Credential, error) {
	server := s.Conversation()
	message, err := c.First()
	if err != nil {
		return sigv4.Credential{}, err
	}
	challenge, _, err := server.Step(message)
	if err != nil {
		return sigv4.Credential{}, err
	}
	message, done, err := c.Next(challenge)
	if err != nil || !done {
		return sigv4.Credential{}, errors.Join(err, errors.New("the conversation is not done"))
	}
	_, _, err = server.Step(message)
	return server.Credential, err
}
