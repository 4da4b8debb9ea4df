package gssapi_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/auth/gssapi"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// fake is a Kerberos library without Kerberos: it puts what it wraps in angle brackets.
type fake struct {
	service gssapi.Service
	user    auth.User
	err     error
}

func (f *fake) Initiate(
	_ context.Context, s gssapi.Service, u auth.User,
) (gssapi.SecurityContext, error) {
	f.service, f.user = s, u
	return f, f.err
}

func (f *fake) Refused(c gssapi.SecurityContext) bool { return c == f }
func (f *fake) First() ([]byte, error)                { return []byte("ticket"), nil }
func (f *fake) Wrap(message []byte) ([]byte, error) {
	return bytes.Join([][]byte{{'<'}, message, {'>'}}, nil), nil
}

func (f *fake) Next(token []byte) error {
	if string(token) != "proof" {
		return errors.New("no proof")
	}
	return nil
}

func (f *fake) Unwrap(wrapped []byte) ([]byte, error) {
	if len(wrapped) < 2 || wrapped[0] != '<' || wrapped[len(wrapped)-1] != '>' {
		return nil, errors.New("not a valid wrap token")
	}
	return wrapped[1 : len(wrapped)-1], nil
}

func TestConversation(t *testing.T) {
	for _, tt := range []struct {
		name, proof, layers string
		want, fail          string
	}{
		{"no layer", "proof", "<\x01\x00\x00\x00>", "<\x01\x00\x00\x00user@REALM>", ""},
		{"all layers", "proof", "<\x07\x00\xff\xff>", "<\x01\x00\x00\x00user@REALM>", ""},
		{"a layer is demanded", "proof", "<\x06\x00\xff\xff>", "", "requires a security layer"},
		{"short", "proof", "<\x01\x00\x00>", "", "3 bytes, must have 4"},
		{"long", "proof", "<\x01\x00\x00\x00\x00>", "", "5 bytes, must have 4"},
		{"empty", "proof", "<>", "", "0 bytes, must have 4"},
		{"not a valid wrap token", "proof", "\x01\x00\x00\x00", "", "not a valid wrap token"},
		{"no proof", "prof", "", "", "no proof"},
	} {
		c := gssapi.NewConversation(new(fake), "user@REALM")
		first, err := c.First()
		if err != nil || string(first) != "ticket" {
			t.Errorf("%s: First = %q, %v", tt.name, first, err)
		}
		response, done, err := c.Next([]byte(tt.proof))
		if err == nil {
			if len(response) > 0 || done {
				t.Errorf("%s: the answer to the proof is %q, done %t", tt.name, response, done)
			}
			response, done, err = c.Next([]byte(tt.layers))
		}
		if string(response) != tt.want || done != (tt.fail == "") ||
			tt.fail != "" && !strings.Contains(err.Error(), tt.fail) {
			t.Errorf("%s: %q, %t, %v, want %q, %q", tt.name, response, done, err, tt.want, tt.fail)
		}
	}
}

func FuzzConversation(f *testing.F) {
	f.Add([]byte("proof"), []byte("<\x01\x00\x00\x00>"))
	f.Add([]byte("proof"), []byte("<\x06\x00\xff\xff>"))
	f.Fuzz(func(t *testing.T, proof, layers []byte) {
		c := gssapi.NewConversation(new(fake), "u")
		if _, done, err := c.Next(proof); err != nil || done {
			return
		}
		response, done, err := c.Next(layers)
		if good := len(layers) == 6 && layers[1]&1 == 1; done != (err == nil) ||
			done && (!good || string(response) != "<\x01\x00\x00\x00u>") {
			t.Errorf("Next(%q) = %q, %t, %v", layers, response, done, err)
		}
	})
}

// names is DNS.
type names struct {
	hosts, aliases, reverse map[string]string
}

var errNoName = errors.New("no such name")

func (n names) LookupHost(_ context.Context, host string) ([]string, error) {
	if a, ok := n.hosts[host]; ok {
		return strings.Fields(a), nil
	}
	return nil, errNoName
}

func (n names) LookupCNAME(_ context.Context, host string) (string, error) {
	if a, ok := n.aliases[host]; ok {
		return a, nil
	}
	return "", errNoName
}

func (n names) LookupAddr(_ context.Context, address string) ([]string, error) {
	if a, ok := n.reverse[address]; ok {
		return strings.Fields(a), nil
	}
	return nil, errNoName
}

func TestServices(t *testing.T) {
	dns := names{
		hosts:   map[string]string{"Alias": "10.0.0.1 10.0.0.2", "no-ptr": "10.0.0.3", "empty": ""},
		aliases: map[string]string{"Alias": "Real.Example.COM.", "empty": ""},
		reverse: map[string]string{"10.0.0.1": "PTR.example.com. other.", "10.0.0.2": "wrong."},
	}
	for _, tt := range []struct {
		canonicalize, host string
		config             gssapi.Config
		want               gssapi.Service
	}{
		{"", "Alias", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "Alias"}},
		{"none", "Alias", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "Alias"}},
		{"false", "Alias", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "Alias"}},
		{"forward", "Alias", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "real.example.com"}},
		{"forwardAndReverse", "Alias", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "ptr.example.com"}},
		{"true", "Alias", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "ptr.example.com"}},
		{"forward", "Unknown", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "Unknown"}},
		{"forward", "empty", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "empty"}},
		{"true", "Unknown", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "Unknown"}},
		{"true", "no-ptr", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "no-ptr"}},
		{"true", "empty", gssapi.Config{}, gssapi.Service{Name: "mongodb", Host: "empty"}},
		{"", "h", gssapi.Config{ServiceName: "alt", ServiceRealm: "R"}, gssapi.Service{Name: "alt", Host: "h", Realm: "R"}},
		{"", "h", gssapi.Config{ServiceHost: "given"}, gssapi.Service{Name: "mongodb", Host: "given"}},
		{"true", "h", gssapi.Config{ServiceHost: "Alias"}, gssapi.Service{Name: "mongodb", Host: "ptr.example.com"}},
	} {
		var err error
		if tt.config.Canonicalize, err = gssapi.ParseCanonicalization(tt.canonicalize); err != nil {
			t.Fatal(err)
		}
		tt.config.Resolver = dns
		library := new(fake)
		user := auth.User{Name: "user", Password: "pencil"}
		to := auth.Target{Address: address.Address(tt.host + ":27017"), User: user}
		if _, err := gssapi.New(tt.config, library).Begin(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		if library.service != tt.want || library.user != user {
			t.Errorf("%s %q: %+v for %v, want %+v", tt.canonicalize, tt.host, library.service,
				library.user, tt.want)
		}
	}
}

func TestUnknownCanonicalization(t *testing.T) {
	for _, text := range []string{"TRUE", "reverse", "1", "forwardandreverse"} {
		if _, err := gssapi.ParseCanonicalization(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestMechanism(t *testing.T) {
	library := new(fake)
	m := gssapi.New(gssapi.Config{}, library)
	if m.Name() != "GSSAPI" || m.Speculate(auth.Target{}) != nil {
		t.Errorf("%s begins in hello", m.Name())
	}
	c, err := m.Begin(t.Context(), auth.Target{Address: "h:1"})
	if err != nil || !m.Refused(c, nil) {
		t.Errorf("the library was not asked whether to try again, %v", err)
	}
	if m.Refused(c, &mongoerr.NetworkError{}) {
		t.Error("the library was asked although the connection broke")
	}
	library.err = errors.New("no ticket")
	if _, err := m.Begin(t.Context(), auth.Target{Address: "h:1"}); !errors.Is(err, library.err) {
		t.Errorf("Begin = %v", err)
	}
}
