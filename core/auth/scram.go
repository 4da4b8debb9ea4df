package auth

import (
	"context"
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // MONGODB's SCRAM-SHA-1 digests passwords with it
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // SCRAM-SHA-1
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"

	"github.com/xdg-go/stringprep"
)

// The iteration counts that servers may ask for. The specification has the minimum; the maximum
// bounds the time that a hostile server can take.
const (
	MinIterations = 4096
	MaxIterations = 1_000_000
)

// SCRAM implements SCRAM-SHA-1 and SCRAM-SHA-256 (RFC 5802, RFC 7677). It computes the keys of a
// password once for each salt and iteration count.
type SCRAM struct {
	name    string
	hash    func() hash.Hash
	prepare func(User) (string, error)
	nonce   func() string
	keys    keyCache
}

var _ Mechanism = (*SCRAM)(nil)

const scramSHA256 = "SCRAM-SHA-256"

// SCRAMSHA1 returns SCRAM-SHA-1 as MongoDB has it: the password is a digest of name and password.
func SCRAMSHA1() *SCRAM {
	return &SCRAM{name: "SCRAM-SHA-1", hash: sha1.New, prepare: digest, nonce: randomNonce}
}

// SCRAMSHA256 returns SCRAM-SHA-256. It prepares the password with SASLprep, and not the name.
func SCRAMSHA256() *SCRAM {
	return &SCRAM{name: scramSHA256, hash: sha256.New, prepare: saslprep, nonce: randomNonce}
}

func digest(u User) (string, error) {
	sum := md5.Sum([]byte(u.Name + ":mongo:" + u.Password)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:]), nil
}

func saslprep(u User) (string, error) {
	prepared, err := stringprep.SASLprep.Prepare(u.Password)
	if err != nil { // whose text shows characters of the password
		return "", errors.New("the password has characters that SASLprep forbids (RFC 4013)")
	}
	return prepared, nil
}

// randomNonce has 192 bits.
func randomNonce() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

// Name returns "SCRAM-SHA-1" or "SCRAM-SHA-256".
func (m *SCRAM) Name() string { return m.name }

// Begin returns a conversation. The error says that SASLprep forbids the password.
func (m *SCRAM) Begin(_ context.Context, to Target) (Conversation, error) {
	password, err := m.prepare(to.User)
	if err != nil {
		return nil, err
	}
	return &scram{mechanism: m, user: to.User.Name, password: password}, nil
}

// Speculate returns a conversation, or nil if Begin has an error.
func (m *SCRAM) Speculate(to Target) Conversation {
	c, err := m.Begin(context.Background(), to)
	if err != nil {
		return nil
	}
	return c
}

// Refused returns false.
func (*SCRAM) Refused(Conversation, error) bool { return false }

// scram represents one conversation.
type scram struct {
	mechanism      *SCRAM
	user, password string

	nonce  string // ours
	bare   string // the first message without its header
	server []byte // the signature that the server must show; set after its first message
}

// Format keeps the password and what was made of it out of every verb.
func (c *scram) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%s(%s)", c.mechanism.name, c.user) }

const gs2Header = "n,," // no channel binding, no authorization identity

// First returns the client-first-message.
func (c *scram) First() ([]byte, error) {
	c.nonce = c.mechanism.nonce()
	c.bare = "n=" + strings.NewReplacer("=", "=3D", ",", "=2C").Replace(c.user) + ",r=" + c.nonce
	return []byte(gs2Header + c.bare), nil
}

// Next answers the server-first-message with the client-final-message, and checks the
// server-final-message.
func (c *scram) Next(payload []byte) (response []byte, done bool, err error) {
	if c.server != nil {
		return nil, true, c.verify(string(payload))
	}
	first, err := parseServerFirst(string(payload), c.nonce)
	if err != nil {
		return nil, false, err
	}
	k, err := c.mechanism.keys.get(c.mechanism.hash,
		keyFactors{c.password, first.salt, first.iterations})
	if err != nil {
		return nil, false, err
	}
	final := "c=" + base64.StdEncoding.EncodeToString([]byte(gs2Header)) + ",r=" + first.nonce
	message := c.bare + "," + string(payload) + "," + final
	proof := sign(c.mechanism.hash, k.stored, message)
	subtle.XORBytes(proof, proof, k.client)
	c.server = sign(c.mechanism.hash, k.server, message)
	return []byte(final + ",p=" + base64.StdEncoding.EncodeToString(proof)), false, nil
}

// verify checks that the server knows the user's keys, too.
func (c *scram) verify(message string) error {
	value, _, _ := strings.Cut(message, ",")
	if reason, ok := strings.CutPrefix(value, "e="); ok {
		return fmt.Errorf("%w (%q)", errRefused, shorten(reason))
	}
	text, ok := strings.CutPrefix(value, "v=")
	if !ok {
		return errors.New("the server's last message has no signature")
	}
	signature, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !hmac.Equal(signature, c.server) {
		return errors.New("the server's signature is wrong: it does not know the user's password")
	}
	return nil
}

// serverFirst holds the server-first-message.
type serverFirst struct {
	nonce      string
	salt       string // decoded
	iterations int
}

// parseServerFirst reads the message, whose nonce must extend ours.
func parseServerFirst(message, nonce string) (serverFirst, error) {
	var m serverFirst
	fields := strings.Split(message, ",")
	if reason, ok := strings.CutPrefix(fields[0], "e="); ok {
		return m, fmt.Errorf("%w (%q)", errRefused, shorten(reason))
	}
	var text [3]string
	// Extensions follow these three fields. They may be ignored.
	for i, prefix := range []string{"r=", "s=", "i="} {
		if i >= len(fields) || !strings.HasPrefix(fields[i], prefix) {
			return m, fmt.Errorf("the server's first message has no %q at its position", prefix)
		}
		text[i] = fields[i][2:]
	}
	if !strings.HasPrefix(text[0], nonce) || len(text[0]) == len(nonce) {
		return m, errors.New("the server's nonce does not begin with the client's")
	}
	salt, err := base64.StdEncoding.DecodeString(text[1])
	if err != nil || len(salt) == 0 {
		return m, errors.New("the server's salt is not base64, or is empty")
	}
	m.nonce, m.salt = text[0], string(salt)
	m.iterations, err = parseIterations(text[2])
	return m, err
}

func parseIterations(text string) (int, error) {
	n := 0
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, errors.New("the server's iteration count is not a number")
		}
		n = n*10 + int(c-'0')
		if n > MaxIterations {
			return 0, fmt.Errorf("the server asks for more than %d iterations", MaxIterations)
		}
	}
	if n < MinIterations {
		return 0, fmt.Errorf("the server asks for %d iterations; at least %d are required", n,
			MinIterations)
	}
	return n, nil
}

// keys holds the keys of a password and a salt.
type keys struct{ client, stored, server []byte }

func derive(h func() hash.Hash, f keyFactors) (keys, error) {
	salted, err := pbkdf2.Key(h, f.password, []byte(f.salt), f.iterations, h().Size())
	if err != nil {
		return keys{}, fmt.Errorf("derive the key of the password: %w", err)
	}
	client := sign(h, salted, "Client Key")
	stored := h()
	stored.Write(client)
	return keys{client: client, stored: stored.Sum(nil), server: sign(h, salted, "Server Key")}, nil
}

func sign(h func() hash.Hash, key []byte, message string) []byte {
	mac := hmac.New(h, key)
	mac.Write([]byte(message))
	return mac.Sum(nil)
}
