package krb5_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/jcmturner/gofork/encoding/asn1"
	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/crypto"
	kgssapi "github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/asnAppTag"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/mooringdb/mooring/core/auth/gssapi"
	"github.com/mooringdb/mooring/core/auth/gssapi/krb5"
)

var (
	session = types.EncryptionKey{KeyType: 18, KeyValue: bytes.Repeat([]byte{1}, 32)}
	subkey  = types.EncryptionKey{KeyType: 18, KeyValue: bytes.Repeat([]byte{2}, 32)}
)

// acceptorSide makes what a server sends. Changes make it wrong.
type acceptorSide struct {
	tb   testing.TB
	sent types.Authenticator
	key  types.EncryptionKey // of wrapped messages
}

func newAcceptorSide(tb testing.TB) (*acceptorSide, gssapi.SecurityContext) {
	sent, err := types.NewAuthenticator(realm, types.NewPrincipalName(1, "user"))
	if err != nil {
		tb.Fatal(err)
	}
	return &acceptorSide{tb, sent, session}, krb5.NewContext(session, sent)
}

func (a *acceptorSide) reply(
	under types.EncryptionKey, change func(*messages.EncAPRepPart),
) []byte {
	a.tb.Helper()
	part := messages.EncAPRepPart{CTime: a.sent.CTime, Cusec: a.sent.Cusec, SequenceNumber: 77}
	change(&part)
	plain, err := asn1.Marshal(part)
	if err != nil {
		a.tb.Fatal(err)
	}
	encrypted, err := crypto.GetEncryptedData(asn1tools.AddASNAppTag(plain, asnAppTag.EncAPRepPart),
		under, keyusage.AP_REP_ENCPART, 0)
	if err != nil {
		a.tb.Fatal(err)
	}
	return a.frame(encrypted.Cipher)
}

// frame puts an encrypted part into a reply and a token.
func (a *acceptorSide) frame(cipher []byte) []byte {
	a.tb.Helper()
	b, err := asn1.Marshal(messages.APRep{
		PVNO: 5, MsgType: 15, EncPart: types.EncryptedData{EType: 18, Cipher: cipher},
	})
	if err != nil {
		a.tb.Fatal(err)
	}
	token, err := krb5.Frame("\x02\x00", asn1tools.AddASNAppTag(b, asnAppTag.APREP))
	if err != nil {
		a.tb.Fatal(err)
	}
	return token
}

func (a *acceptorSide) wrap(message string, change func(*kgssapi.WrapToken)) []byte {
	a.tb.Helper()
	token := kgssapi.WrapToken{Flags: 1, SndSeqNum: 77, Payload: []byte(message)}
	if a.key.KeyValue[0] == subkey.KeyValue[0] {
		token.Flags |= 4
	}
	change(&token)
	if err := token.SetCheckSum(a.key, keyusage.GSSAPI_ACCEPTOR_SEAL); err != nil {
		a.tb.Fatal(err)
	}
	token.EC = uint16(len(token.CheckSum))
	b, err := token.Marshal()
	if err != nil {
		a.tb.Fatal(err)
	}
	return b
}

func asItIs[T any](*T) {}

// TestReplies: the server's proof is its answer to the time in this request, under the ticket's
// key.
func TestReplies(t *testing.T) {
	a, _ := newAcceptorSide(t)
	broken, err := krb5.Frame("\x03\x00", []byte("?"))
	if err != nil {
		t.Fatal(err)
	}
	report := messages.KRBError{
		PVNO: 5, MsgType: 30, STime: a.sent.CTime, ErrorCode: 37, Realm: realm, EText: "clock skew",
		SName: a.sent.CName,
	}
	encoded, err := report.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	reported, err := krb5.Frame("\x03\x00", encoded)
	if err != nil {
		t.Fatal(err)
	}
	request, err := krb5.Frame("\x01\x00", nil)
	if err != nil {
		t.Fatal(err)
	}
	nothing, err := krb5.Frame("\x02\x00", nil)
	if err != nil {
		t.Fatal(err)
	}
	good := a.reply(session, asItIs)
	for name, tt := range map[string]struct {
		token []byte
		want  string
	}{
		"good":                 {good, ""},
		"with a subkey":        {a.reply(session, func(p *messages.EncAPRepPart) { p.Subkey = subkey }), ""},
		"a subkey of RC4":      {a.reply(session, func(p *messages.EncAPRepPart) { p.Subkey = types.EncryptionKey{KeyType: 23, KeyValue: []byte("x")} }), "type 23"},
		"another request's":    {a.reply(session, func(p *messages.EncAPRepPart) { p.Cusec = (p.Cusec + 1) % 1e6 }), "does not match"},
		"another second's":     {a.reply(session, func(p *messages.EncAPRepPart) { p.CTime = p.CTime.Add(-1e9) }), "does not match"},
		"with another key":     {a.reply(subkey, asItIs), "not made with the service's key"},
		"nothing encrypted":    {a.frame(nil), "too short"},
		"a checksum only":      {a.frame(make([]byte, 12)), "too short"},
		"less than a checksum": {a.frame(make([]byte, 3)), "too short"},
		"a confounder only":    {a.frame(make([]byte, 28)), "too short"},
		"noise":                {a.frame(make([]byte, 64)), "not made with the service's key"},
		"empty":                {nil, "not a GSSAPI token"},
		"trailing bytes":       {append(bytes.Clone(good), 0), "not a GSSAPI token"},
		"another mechanism":    {bytes.Replace(good, []byte{0x48, 0x86, 0xf7}, []byte{0x48, 0x86, 0xf8}, 1), "not a Kerberos token"},
		"a request":            {request, "identifier 0100"},
		"no message":           {nothing, "cannot be parsed"},
		"an error":             {reported, `error 37: "clock skew"`},
		"an error of nothing":  {broken, "the server's error cannot be parsed"},
	} {
		err := krb5.NewContext(session, a.sent).Next(tt.token)
		if (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestWrapped: a message counts if its checksum is of the acceptor, under the key that was agreed,
// and if it is the first.
func TestWrapped(t *testing.T) {
	rotate := func(b []byte, n int) []byte {
		body := b[16:]
		binary.BigEndian.PutUint16(b[6:], uint16(n))
		n %= len(body)
		return append(b[:16:16], append(bytes.Clone(body[len(body)-n:]), body[:len(body)-n]...)...)
	}
	for _, key := range []types.EncryptionKey{session, subkey} {
		a, c := newAcceptorSide(t)
		if err := c.Next(a.reply(session, func(p *messages.EncAPRepPart) {
			if key.KeyValue[0] == subkey.KeyValue[0] {
				p.Subkey = subkey
			}
		})); err != nil {
			t.Fatal(err)
		}
		a.key = key
		other := *a
		other.key = types.EncryptionKey{KeyType: 18, KeyValue: bytes.Repeat([]byte{3}, 32)}
		for name, tt := range map[string]struct {
			wrapped []byte
			want    string
		}{
			"good":                {a.wrap("abcd", asItIs), ""},
			"rotated":             {rotate(a.wrap("abcd", asItIs), 12), ""},
			"rotated far":         {rotate(a.wrap("abcd", asItIs), 65535), ""},
			"changed":             {bytes.Replace(a.wrap("abcd", asItIs), []byte("abcd"), []byte("abce"), 1), "checksum"},
			"of another key":      {other.wrap("abcd", func(w *kgssapi.WrapToken) { w.Flags = a.wrap("", asItIs)[2] }), "checksum"},
			"the second":          {a.wrap("abcd", func(w *kgssapi.WrapToken) { w.SndSeqNum++ }), "unexpected sequence number"},
			"encrypted":           {a.wrap("abcd", func(w *kgssapi.WrapToken) { w.Flags |= 2 }), "encrypted"},
			"under the other key": {a.wrap("abcd", func(w *kgssapi.WrapToken) { w.Flags ^= 4 }), "another key"},
			"of an initiator":     {a.wrap("abcd", func(w *kgssapi.WrapToken) { w.Flags &^= 1 }), "not a valid wrap token"},
			"a header only":       {a.wrap("abcd", asItIs)[:16], "not a valid wrap token"},
			"half a header":       {a.wrap("abcd", asItIs)[:7], "not a valid wrap token"},
			"empty":               {nil, "not a valid wrap token"},
		} {
			got, err := c.Unwrap(tt.wrapped)
			if (err == nil) != (tt.want == "") ||
				err != nil && !strings.Contains(err.Error(), tt.want) ||
				err == nil && string(got) != "abcd" {
				t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
			}
		}
	}
}

func FuzzTokens(f *testing.F) {
	a, _ := newAcceptorSide(f)
	f.Add(a.reply(session, asItIs), a.wrap("\x01\x00\x00\x00", asItIs))
	f.Add(a.reply(session, func(p *messages.EncAPRepPart) { p.Subkey = subkey }), []byte{})
	f.Add(a.frame(make([]byte, 29)), []byte{5, 4, 1, 255, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, reply, wrapped []byte) {
		c := krb5.NewContext(session, a.sent)
		_ = c.Next(reply)
		if got, err := c.Unwrap(wrapped); err != nil && got != nil {
			t.Errorf("Unwrap = %q beside the error %v", got, err)
		}
		if id, message, err := krb5.Unframe(reply); err == nil {
			again, err := krb5.Frame(id, message)
			if err != nil {
				t.Fatal(err)
			}
			if _, message2, err := krb5.Unframe(again); err != nil ||
				!bytes.Equal(message, message2) {
				t.Errorf("Unframe(Frame(%x)) = %x, %v", message, message2, err)
			}
		}
	})
}

// TestContextPrintsNoKey: a context that is established holds the acceptor's key, and shows none.
func TestContextPrintsNoKey(t *testing.T) {
	a, c := newAcceptorSide(t)
	if err := c.Next(a.reply(session, func(p *messages.EncAPRepPart) {
		p.Subkey = subkey
	})); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%d", "%x"} {
		shown := strings.Trim(fmt.Sprintf(verb, subkey.KeyValue[:4]), "[]byte{}")
		if text := fmt.Sprintf(verb, c); strings.Contains(text, shown) {
			t.Errorf("%s shows the key: %s", verb, text)
		}
	}
}
