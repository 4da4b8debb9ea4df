package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// saslLogin represents a login by one SASL mechanism.
type saslLogin struct {
	source string
	m      Mechanism
}

func (l saslLogin) mechanism() string { return l.m.Name() }

func (l saslLogin) hello(b *bson.Builder, to Target) (exchange, error) {
	c := l.m.Speculate(to)
	if c == nil {
		return nil, nil
	}
	x := &sasl{mechanism: l.m.Name(), conversation: c}
	command, err := x.first()
	if err != nil {
		return nil, err
	}
	b.OpenDocument("speculativeAuthenticate").AppendElements(command).String("db", l.source).Close()
	return x, nil
}

func (l saslLogin) choose(bson.Raw, bool, Target) (login, error) { return l, nil }

func (l saslLogin) begin(ctx context.Context, to Target) (exchange, error) {
	c, err := l.m.Begin(ctx, to)
	if err != nil {
		return nil, err
	}
	return &sasl{mechanism: l.m.Name(), conversation: c}, nil
}

func (l saslLogin) refused(x exchange, err error) bool {
	return l.m.Refused(x.(*sasl).conversation, err)
}

// discloses returns false for mechanisms that send no secret: SCRAM and GSSAPI prove a secret
// without sending it.
func (l saslLogin) discloses() bool { return !isSCRAM(l.m.Name()) && l.m.Name() != "GSSAPI" }

func isSCRAM(mechanism string) bool { return strings.HasPrefix(mechanism, "SCRAM-") }

// sasl puts a conversation into saslStart and saslContinue.
type sasl struct {
	mechanism    string
	conversation Conversation
	id           bson.Value // the server's conversationId
	steps        int        // replies so far
	satisfied    bool       // the conversation is
	emptied      bool       // an empty saslContinue was sent after that
}

func (x *sasl) first() (bson.Raw, error) {
	payload, err := x.conversation.First()
	if err != nil {
		return nil, err
	}
	b := bson.NewBuilder(nil).Int32("saslStart", 1).String("mechanism", x.mechanism).
		Binary("payload", bson.SubtypeGeneric, payload)
	if isSCRAM(x.mechanism) { // servers from 4.4 leave out the empty exchange at the end
		b.OpenDocument("options").Bool("skipEmptyExchange", true).Close()
	}
	return b.Finish(), nil
}

func (x *sasl) next(reply bson.Raw) (bson.Raw, error) {
	r, err := parseSASL(reply)
	if err != nil {
		return nil, err
	}
	if x.steps++; x.steps > MaxSteps {
		return nil, fmt.Errorf("the conversation has not ended after %d replies", MaxSteps)
	}
	if x.steps == 1 {
		x.id = r.id.Clone()
	} else if !r.id.Equal(x.id) {
		return nil, errors.New("the server continues with another conversationId")
	}
	response, err := x.take(r)
	if err != nil || r.done {
		return nil, err
	}
	return bson.NewBuilder(nil).Int32("saslContinue", 1).Value("conversationId", x.id).
		Binary("payload", bson.SubtypeGeneric, response).Finish(), nil
}

// take gives the payload to the conversation, and checks that both sides agree on the end.
func (x *sasl) take(r saslReply) ([]byte, error) {
	if x.satisfied {
		switch {
		case len(r.payload) > 0:
			return nil, errors.New("the server continues after the end of the conversation")
		case !r.done && x.emptied:
			return nil, errors.New("the server has not ended the conversation")
		}
		x.emptied = true
		return nil, nil
	}
	response, done, err := x.conversation.Next(r.payload)
	switch {
	case err != nil:
		return nil, err
	case r.done && !done:
		return nil, errors.New("the server ended the conversation before it proved its identity")
	case r.done && len(response) > 0:
		return nil, errors.New("the server ended the conversation before the client's last message")
	}
	x.satisfied, x.emptied = done, done && len(response) == 0
	return response, nil
}

// saslReply holds a reply to saslStart or saslContinue. payload is a view of it, or decoded.
type saslReply struct {
	id      bson.Value
	payload []byte
	done    bool
}

func parseSASL(reply bson.Raw) (saslReply, error) {
	var r saslReply
	id, ok := reply.Lookup("conversationId")
	if !ok {
		return r, errors.New("the reply has no conversationId")
	}
	if _, ok := id.AsInt64(); !ok {
		return r, fmt.Errorf("conversationId is a %v, must be a number", id.Type)
	}
	done, _ := reply.Lookup("done")
	if r.done, ok = done.Bool(); !ok {
		return r, errors.New("the reply has no boolean field done")
	}
	payload, _ := reply.Lookup("payload")
	r.id = id
	var err error
	r.payload, err = parsePayload(payload)
	return r, err
}

// parsePayload accepts binary, and text in base64, which the specification allows, too.
func parsePayload(v bson.Value) ([]byte, error) {
	if text, ok := v.Str(); ok {
		if len(text) > base64.StdEncoding.EncodedLen(MaxPayload) {
			return nil, errPayloadSize
		}
		payload, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, errors.New("the payload is a string that is not base64")
		}
		return payload, nil
	}
	_, payload, ok := v.Binary()
	switch {
	case !ok:
		return nil, errors.New("the reply has no payload")
	case len(payload) > MaxPayload:
		return nil, errPayloadSize
	}
	return payload, nil
}

var errPayloadSize = fmt.Errorf("the payload is longer than %d bytes", MaxPayload)
