package krb5

import (
	"bytes"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	ours "github.com/mooringdb/mooring/core/auth/gssapi"
)

// The identifiers of tokens (RFC 4121, section 4.1), and the flags of wrapped messages (section
// 4.2.2).
const (
	idRequest = "\x01\x00"
	idReply   = "\x02\x00"
	idError   = "\x03\x00"

	flagSealed         = 2
	flagAcceptorSubkey = 4
)

// kerberos is the object identifier of the mechanism.
var kerberos = asn1.ObjectIdentifier{1, 2, 840, 113554, 1, 2, 2}

// securityContext implements a context with one service.
type securityContext struct {
	service ours.Service
	ticket  *ticket
	cached  bool // the ticket was not fetched for this context

	sent     types.Authenticator
	received messages.EncAPRepPart
}

// Format keeps the keys out of every verb.
func (c *securityContext) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "krb5.context(%s/%s)", c.service.Name, c.service.Host)
}

// First returns the request that has the ticket (AP-REQ). It demands that the acceptor proves who
// it is, too.
func (c *securityContext) First() ([]byte, error) {
	if !supported(c.ticket.key) {
		kind := c.ticket.key.KeyType
		return nil, fmt.Errorf("the ticket has a key of type %d; only AES is supported", kind)
	}
	var err error
	client := c.ticket.client
	if c.sent, err = types.NewAuthenticator(client.realm, client.name); err != nil {
		return nil, err
	}
	c.sent.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI, Checksum: checksum()}
	request, err := messages.NewAPReq(c.ticket.ticket, c.ticket.key, c.sent)
	if err != nil {
		return nil, err
	}
	types.SetFlag(&request.APOptions, flags.APOptionMutualRequired)
	b, err := request.Marshal()
	if err != nil {
		return nil, err
	}
	return frame(idRequest, b)
}

// supported reports whether wrapped messages under such a key have the form of RFC 4121, as Unwrap
// and Wrap know it.
func supported(k types.EncryptionKey) bool {
	switch k.KeyType {
	case etypeID.AES128_CTS_HMAC_SHA1_96, etypeID.AES256_CTS_HMAC_SHA1_96,
		etypeID.AES128_CTS_HMAC_SHA256_128, etypeID.AES256_CTS_HMAC_SHA384_192:
		return true
	}
	return false
}

// checksum carries the flags of the context, and no channel binding (RFC 4121, section 4.1.1).
func checksum() []byte {
	b := make([]byte, 24)
	binary.LittleEndian.PutUint32(b, 16)
	const flags = gssapi.ContextFlagMutual | gssapi.ContextFlagSequence | gssapi.ContextFlagInteg
	binary.LittleEndian.PutUint32(b[20:], flags)
	return b
}

// Next takes the acceptor's reply (AP-REP). It proves that the acceptor could read the request: it
// has the time in it.
func (c *securityContext) Next(token []byte) error {
	id, b, err := unframe(token)
	if err != nil {
		return err
	}
	switch id {
	case idReply:
	case idError:
		return errorIn(b)
	default:
		return fmt.Errorf("unexpected token identifier %x", id)
	}
	var reply messages.APRep
	if err := reply.Unmarshal(b); err != nil {
		return errors.New("the AP-REP cannot be parsed")
	}
	plain, err := decrypt(reply.EncPart.Cipher, c.ticket.key)
	if err != nil {
		return err
	}
	if err := c.received.Unmarshal(plain); err != nil {
		return errors.New("the encrypted part cannot be parsed")
	}
	if c.received.CTime.Unix() != c.sent.CTime.Unix() || c.received.Cusec != c.sent.Cusec {
		return errors.New("the AP-REP does not match the request")
	}
	if key := c.received.Subkey; len(key.KeyValue) > 0 && !supported(key) {
		return fmt.Errorf("the subkey has the type %d; only AES is supported", key.KeyType)
	}
	return nil
}

// decrypt checks the length that gokrb5 takes for granted: a confounder of one block, and the
// checksum.
func decrypt(cipher []byte, key types.EncryptionKey) ([]byte, error) {
	kind, err := crypto.GetEtype(key.KeyType)
	if err != nil {
		return nil, err
	}
	if len(cipher) <= kind.GetConfounderByteSize()+kind.GetHMACBitLength()/8 {
		return nil, errors.New("the encrypted part is too short")
	}
	plain, err := crypto.DecryptMessage(cipher, key, keyusage.AP_REP_ENCPART)
	if err != nil {
		return nil, errors.New("the encrypted part was not made with the service's key")
	}
	return plain, nil
}

// errorIn returns what a KRB-ERROR says.
func errorIn(b []byte) error {
	var e messages.KRBError
	if err := e.Unmarshal(b); err != nil {
		return errors.New("the server's error cannot be parsed")
	}
	return fmt.Errorf("the server reports Kerberos error %d: %.200q", e.ErrorCode, e.EText)
}

// key returns the key of wrapped messages, and the flag that says which one it is.
func (c *securityContext) key() (key types.EncryptionKey, flag byte) {
	if len(c.received.Subkey.KeyValue) > 0 {
		return c.received.Subkey, flagAcceptorSubkey
	}
	return c.ticket.key, 0
}

// Wrap returns a message with a checksum (RFC 4121, section 4.2.6.2). It is the context's first,
// and only one.
func (c *securityContext) Wrap(message []byte) ([]byte, error) {
	key, flag := c.key()
	token := gssapi.WrapToken{Flags: flag, SndSeqNum: uint64(c.sent.SeqNumber), Payload: message}
	if err := token.SetCheckSum(key, keyusage.GSSAPI_INITIATOR_SEAL); err != nil {
		return nil, err
	}
	token.EC = uint16(len(token.CheckSum))
	return token.Marshal()
}

// Unwrap returns the acceptor's first message.
func (c *securityContext) Unwrap(wrapped []byte) ([]byte, error) {
	var token gssapi.WrapToken
	if err := token.Unmarshal(unrotate(wrapped), true); err != nil {
		return nil, errors.New("the message is not a valid wrap token")
	}
	key, flag := c.key()
	switch ok, err := token.Verify(key, keyusage.GSSAPI_ACCEPTOR_SEAL); {
	case token.Flags&flagSealed != 0:
		return nil, errors.New("the message is encrypted")
	case token.Flags&flagAcceptorSubkey != flag:
		return nil, errors.New("the message is protected with another key")
	case err != nil || !ok:
		return nil, errors.New("the message's checksum is wrong")
	case token.SndSeqNum != uint64(c.received.SequenceNumber):
		return nil, errors.New("the message has an unexpected sequence number")
	}
	return token.Payload, nil
}

// unrotate undoes the rotation of what follows the header by the count in it (RFC 4121, section
// 4.2.5).
func unrotate(wrapped []byte) []byte {
	if len(wrapped) <= gssapi.HdrLen {
		return wrapped
	}
	header, body := wrapped[:gssapi.HdrLen], wrapped[gssapi.HdrLen:]
	n := int(binary.BigEndian.Uint16(header[6:])) % len(body)
	return bytes.Join([][]byte{header, body[n:], body[:n]}, nil)
}

// frame puts a message of Kerberos into a token (RFC 2743, section 3.1).
func frame(id string, message []byte) ([]byte, error) {
	oid, err := asn1.Marshal(kerberos)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(asn1.RawValue{
		Class: asn1.ClassApplication, Tag: 0, IsCompound: true,
		Bytes: bytes.Join([][]byte{oid, []byte(id), message}, nil),
	})
}

func unframe(token []byte) (id string, message []byte, err error) {
	var outer asn1.RawValue
	if rest, err := asn1.Unmarshal(token, &outer); err != nil || len(rest) > 0 {
		return "", nil, errors.New("not a GSSAPI token")
	}
	var oid asn1.ObjectIdentifier
	rest, err := asn1.Unmarshal(outer.Bytes, &oid)
	isToken := outer.Class == asn1.ClassApplication && outer.Tag == 0
	if !isToken || err != nil || !oid.Equal(kerberos) || len(rest) < 2 {
		return "", nil, errors.New("not a Kerberos token")
	}
	return string(rest[:2]), rest[2:], nil
}
