package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/core/auth/oidc"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
)

// Whatever holds a credential does not show it, however it is printed.
func TestNothingPrintsASecret(t *testing.T) {
	const secret = "s3cretpw"
	texts := connstring.Source{URI: "mongodb://app:" + secret + "@a/?proxyHost=p&proxyUsername=u&proxyPassword=" + secret +
		"&tls=true&tlsCertificateKeyFilePassword=" + secret}
	cfg, err := texts.Parse()
	if err != nil {
		t.Fatal(err)
	}
	c, err := connstring.Parse("mongodb://app:" + secret + "@a/?proxyHost=p&proxyUsername=u&proxyPassword=" + secret)
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.New(c, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := client.TopologyConfig(&c, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	user := auth.User{Name: "app", Password: secret}
	target := auth.Target{User: user}
	authenticator := auth.Negotiate("admin", auth.FixedUser(user))
	state, err := authenticator.Start(auth.Target{})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.AppendHello(new(bson.Builder)); err != nil {
		t.Fatal(err)
	}
	printed := map[string]any{
		"connstring.Source": texts, "connstring.Config": cfg, "*connstring.Config": &cfg, "connstring.TLS": cfg.TLS,
		"*connstring.TLS": &cfg.TLS, "connstring.Proxy": cfg.Proxy, "connstring.Property": connstring.Property{Name: "x", Value: secret},
		"topology.Config": watch, "conn.Config": watch.Conn, "*conn.Proxy": watch.Conn.Proxy, "conn.Proxy": *watch.Conn.Proxy,
		"client.Client": made, "auth.User": user, "auth.Target": target, "auth.Authenticator": authenticator, "auth.State": state,
	}
	token := func(context.Context, oidc.Request) (oidc.Token, error) {
		return oidc.Token{AccessToken: secret}, nil
	}
	for _, m := range []auth.Mechanism{
		auth.SCRAMSHA256(),
		auth.Plain{},
		oidc.New(oidc.ProviderFunc(token)),
		aws.New(aws.NewSource(aws.Config{Getenv: func(string) string { return secret }})),
	} {
		conversation, err := m.Begin(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		printed[m.Name()], printed["conversation of "+m.Name()] = m, conversation
	}
	// the id of its key is not a secret, but the same text here
	delete(printed, "conversation of MONGODB-AWS")
	conversation := aws.NewConversation(aws.Credentials{
		AccessKeyID: "id", SecretAccessKey: secret, SessionToken: secret,
	}, aws.Nonce{}, time.Time{})
	printed["*aws.Conversation"] = conversation
	for name, v := range printed {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
			text := fmt.Sprintf(verb, v)
			if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
				t.Errorf("%s shows the secret with %s", name, verb)
			}
		}
		// not all can be marshaled
		if text, _ := json.Marshal(v); strings.Contains(string(text), secret) {
			t.Errorf("%s shows the secret as JSON", name)
		}
	}
}
