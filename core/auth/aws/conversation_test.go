package aws_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/core/bson"
)

var (
	regular   = aws.Credentials{AccessKeyID: "AKIDREGULAR", SecretAccessKey: "regular-secret-key"}
	temporary = aws.Credentials{
		AccessKeyID: "ASIATEMP", SecretAccessKey: "temporary-secret-key",
		SessionToken: "temporary-token/+=",
	}
	noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
)

func TestConversation(t *testing.T) {
	for _, c := range []aws.Credentials{regular, temporary} {
		for _, tt := range []struct{ host, region string }{
			{"sts.amazonaws.com", "us-east-1"},
			{"sts.us-west-2.amazonaws.com", "us-west-2"},
			{"sts.us-west-2.amazonaws.com.ch", "us-west-2"},
			{"example.com", "com"},
			{"localhost", "us-east-1"},
			{strings.Repeat("a", 255), "us-east-1"},
		} {
			s := newServer(regular, temporary)
			s.Host = tt.host
			got, err := converse(s, aws.NewConversation(c, aws.Nonce{1, 31: 32}, noon))
			if err != nil || got.AccessKeyID != c.AccessKeyID || got.Region != tt.region ||
				got.Service != "sts" {
				t.Errorf("%v at %s: %+v, %v", c, tt.host, got, err)
			}
		}
	}
}

func TestFirstMessage(t *testing.T) {
	var nonce aws.Nonce
	copy(nonce[:], "[=%J:|0LB(e>A3E*V~MH&*+;U~oAZW>x")
	first, err := aws.NewConversation(regular, nonce, noon).First()
	want := bson.NewBuilder(nil).Binary("r", 0, nonce[:]).Int32("p", 110).Finish()
	if err != nil || !bytes.Equal(first, want) {
		t.Errorf("First() = %x, %v, want %x", first, err, want)
	}
	// The example of the specification has the same shape.
	example, _ := base64.StdEncoding.DecodeString(
		"NAAAAAVyACAAAAAAWj0lSjp8M0BMKGU+QVAzRSpWfk0hJigqO1V+b0FaVz4QcABuAAAAAA==")
	if len(example) != len(first) || !bytes.Equal(example[:12], first[:12]) ||
		!bytes.Equal(example[44:], first[44:]) {
		t.Errorf("First() = %x, the specification's example is %x", first, example)
	}
}

// TestSpecificationExample signs the challenge in the specification's example as it does, but for
// the secret key, which it does not tell: all but the signature must be equal.
func TestSpecificationExample(t *testing.T) {
	decode := func(s string) []byte {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	challenge := decode("ZgAAAAVzAEAAAAAAWj0lSjp8M0BMKGU+QVAzRSpWfk0hJigqO1V+b0FaVz5Rj7x9UOBHJLvPgvgPS9sSzZUWgAPTy8HBbI1cG1WJ9gJo" +
		"ABIAAABzdHMuYW1hem9uYXdzLmNvbQAA")
	want := decode("LQEAAAJhAAkBAABBV1M0LUhNQUMtU0hBMjU2IENyZWRlbnRpYWw9QUtJQUlDR1ZMS09LWlZZM1gzREEvMjAxOTExMTIvdXMtZWFzdC0xL3N0cy9h" +
		"d3M0X3JlcXVlc3QsIFNpZ25lZEhlYWRlcnM9Y29udGVudC1sZW5ndGg7Y29udGVudC10eXBlO2hvc3Q7eC1hbXotZGF0ZTt4LW1vbmdvZGItZ3My" +
		"LWNiLWZsYWc7eC1tb25nb2RiLXNlcnZlci1ub25jZSwgU2lnbmF0dXJlPThhMTI0NGZjODYyZTI5YjZiZjc0OTFmMmYwNDE5NDY2ZGNjOTFmZWU1" +
		"MTJhYTViM2ZmZjQ1NDY3NDEwMjJiMmUAAmQAEQAAADIwMTkxMTEyVDIxMDEyMloAAA==")
	s, _ := bson.Raw(challenge).Lookup("s")
	_, nonce, _ := s.Binary()
	c := aws.NewConversation(aws.Credentials{
		AccessKeyID: "AKIAICGVLKOKZVY3X3DA", SecretAccessKey: "?",
	}, aws.Nonce(nonce),
		time.Date(2019, 11, 12, 21, 1, 22, 0, time.UTC))
	got, done, err := c.Next(challenge)
	if err != nil || !done {
		t.Fatalf("Next: done %t, %v", done, err)
	}
	at := bytes.Index(want, []byte("Signature=")) + len("Signature=")
	if len(got) != len(want) || !bytes.Equal(got[:at], want[:at]) ||
		!bytes.Equal(got[at+64:], want[at+64:]) {
		t.Errorf("Next = %q, want %q", got, want)
	}
}

func TestChallengesThatAreRefused(t *testing.T) {
	nonce := aws.Nonce{7}
	extended := append(nonce[:], make([]byte, 32)...)
	build := func(nonce []byte, host string) []byte {
		return new(bson.Builder).Binary("s", 0, nonce).String("h", host).Finish()
	}
	for name, tt := range map[string]struct {
		challenge []byte
		want      string
	}{
		"nothing":                {nil, "message"},
		"no BSON":                {[]byte("s=1,h=2"), "message"},
		"cut":                    {build(extended, "localhost")[:20], "message"},
		"no nonce":               {new(bson.Builder).String("h", "localhost").Finish(), "no nonce"},
		"a nonce of text":        {new(bson.Builder).String("s", "x").String("h", "localhost").Finish(), "no nonce"},
		"another subtype":        {new(bson.Builder).Binary("s", 4, extended).String("h", "localhost").Finish(), "no nonce"},
		"no host":                {new(bson.Builder).Binary("s", 0, extended).Finish(), "no STS host"},
		"a host of another type": {new(bson.Builder).Binary("s", 0, extended).Int32("h", 1).Finish(), "no STS host"},
		"63 bytes":               {build(extended[:63], "localhost"), "63 bytes"},
		"65 bytes":               {build(append(extended, 0), "localhost"), "65 bytes"},
		"our nonce only":         {build(nonce[:], "localhost"), "32 bytes"},
		"another nonce":          {build(make([]byte, 64), "localhost"), "does not begin with the client's"},
		"empty host":             {build(extended, ""), "STS host is empty"},
		"256 bytes":              {build(extended, strings.Repeat("a", 256)), "256 bytes"},
		"empty label":            {build(extended, "sts..com"), "empty label"},
		"leading period":         {build(extended, ".amazonaws.com"), "empty label"},
		"trailing period":        {build(extended, "sts.amazonaws."), "empty label"},
		"a period":               {build(extended, "."), "empty label"},
		"a header in the host":   {build(extended, "sts.amazonaws.com\nx-amz-target:a"), "not a domain name"},
		"a path in the host":     {build(extended, "sts.amazonaws.com/x"), "not a domain name"},
		"a port in the host":     {build(extended, "sts.amazonaws.com:443"), "not a domain name"},
	} {
		response, done, err := aws.NewConversation(temporary, nonce, noon).Next(tt.challenge)
		if err == nil || done || response != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Next = %q, %t, %v, want an error with %q", name, response, done, err,
				tt.want)
			continue
		}
		checkNoSecret(t, err.Error(), temporary)
	}
}

func TestCredentialsArePrintedWithoutSecrets(t *testing.T) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, c := range []any{
			temporary, &temporary, []aws.Credentials{temporary}, struct{ C aws.Credentials }{temporary},
		} {
			checkNoSecret(t, fmt.Sprintf(verb, c), temporary)
		}
	}
}

func checkNoSecret(t *testing.T, text string, c aws.Credentials) {
	t.Helper()
	for _, secret := range []string{c.SecretAccessKey, c.SessionToken} {
		if secret != "" &&
			(strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret))) {
			t.Errorf("%q has a secret in it", text)
		}
	}
}

func FuzzChallenge(f *testing.F) {
	nonce := aws.Nonce{7}
	extended := append(nonce[:], make([]byte, 32)...)
	f.Add([]byte(new(bson.Builder).Binary("s", 0, extended).
		String("h", "sts.us-west-2.amazonaws.com").Finish()))
	f.Add([]byte(new(bson.Builder).Binary("s", 0, extended).String("h", "sts..com").Finish()))
	f.Add([]byte(new(bson.Builder).Binary("s", 0, nonce[:]).Finish()))
	f.Fuzz(func(t *testing.T, challenge []byte) {
		response, done, err := aws.NewConversation(temporary, nonce, noon).Next(challenge)
		switch {
		case err != nil && (done || response != nil):
			t.Fatalf("Next(%x) = %q, %t beside the error %v", challenge, response, done, err)
		case err != nil:
			checkNoSecret(t, err.Error(), temporary)
		default:
			if _, err := newServer(temporary).Verify(challenge, response); err != nil {
				t.Fatalf("Next(%x): %v", challenge, err)
			}
		}
	})
}
