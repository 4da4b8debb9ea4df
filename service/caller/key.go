package caller

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// An API key is keyPrefix, an id and a secret of 256 random bits, with _ between the last two:
//
//	mooring_q1Jd3KZ0_5sW0…  (60 bytes)
//
// The file of keys has a line for each, without the secret:
//
//	principal q1Jd3KZ0 SALT.HASH [expires=2027-01-31T00:00:00Z] [groups=a,b] [claim.NAME=VALUE]…
//
// HASH is the SHA-256 of salt and secret. A slow hash protects secrets that can be guessed. 256
// random bits cannot be guessed, and a slow hash would cost more than the call.
const (
	keyPrefix   = "mooring_"
	idBytes     = 6
	secretBytes = 32
	saltBytes   = 16
)

var (
	encoding  = base64.RawURLEncoding.Strict()
	idText    = encoding.EncodedLen(idBytes)
	keyLength = len(keyPrefix) + idText + 1 + encoding.EncodedLen(secretBytes)
)

// kindKeyName begins the principal of an API key.
const kindKeyName = "key:"

// expiresField is the name of the field with the time at which a key ends.
const expiresField = "expires="

// NewKey returns a new API key and its line for the file of keys. A zero time means that the key
// does not expire. It fails if the principal cannot stand in such a file.
func NewKey(principal string, expires time.Time) (key, line string, err error) {
	if _, err := keyIdentity(principal); err != nil {
		return "", "", err
	}
	var random [idBytes + secretBytes + saltBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	id, secret := random[:idBytes], random[idBytes:idBytes+secretBytes]
	salt := random[idBytes+secretBytes:]
	hash := hashKey(salt, secret)
	name := encoding.EncodeToString(id)
	key = keyPrefix + name + "_" + encoding.EncodeToString(secret)
	line = principal + " " + name + " " + encoding.EncodeToString(salt) + "." +
		encoding.EncodeToString(hash[:])
	if !expires.IsZero() {
		line += " " + expiresField + expires.UTC().Format(time.RFC3339)
	}
	return key, line, nil
}

func hashKey(salt, secret []byte) [sha256.Size]byte {
	var salted [saltBytes + secretBytes]byte
	copy(salted[copy(salted[:], salt):], secret)
	return sha256.Sum256(salted[:])
}

// keyIdentity returns the identity of the API keys of a principal, which a line of the file of
// keys can begin with.
func keyIdentity(name string) (*Identity, error) {
	switch {
	case name == "":
		return nil, errors.New("the principal has no name")
	case strings.HasPrefix(name, "#"):
		return nil, errors.New("the principal's name begins with #, as comments do")
	case strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}):
		return nil, errors.New(
			"the principal's name has a space or a character that is not printable")
	}
	id, err := newIdentity(kindKeyName, name, time.Time{})
	if err != nil {
		return nil, errors.New("the principal's name is too long or not UTF-8")
	}
	return id, nil
}

// KeyTable holds the API keys that count, without their secrets. It does not change.
type KeyTable struct {
	byID map[string]*apiKey
	ids  []string // in the file's order
}

type apiKey struct {
	id       string
	identity *Identity
	salt     [saltBytes]byte
	hash     [sha256.Size]byte
}

// equals reports whether two tables have the same keys, which say the same of their clients.
func (t *KeyTable) equals(other *KeyTable) bool {
	if t == nil || other == nil {
		return t == other
	}
	return slices.Equal(t.ids, other.ids) &&
		maps.EqualFunc(t.byID, other.byID, func(a, b *apiKey) bool {
			return a.salt == b.salt && a.hash == b.hash &&
				a.identity.Expires.Equal(b.identity.Expires) &&
				a.identity.Digest() == b.identity.Digest()
		})
}

// ParseKeys reads a file of keys. Empty lines and lines that begin with # do not count. Its errors
// name the line and show nothing of it.
func ParseKeys(text []byte) (*KeyTable, error) {
	t := &KeyTable{byID: map[string]*apiKey{}}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		fields := strings.Fields(string(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		id, k, err := parseLine(fields)
		if err == nil && t.byID[id] != nil {
			err = errors.New("an earlier line has the same id")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		t.byID[id] = k
		t.ids = append(t.ids, id)
	}
	return t, nil
}

func parseLine(fields []string) (id string, k *apiKey, err error) {
	if len(fields) < 3 {
		return "", nil, errors.New("it is not a principal, an id, and salt.hash, as " +
			"`mooring key api new` prints them")
	}
	identity, err := keyIdentity(fields[0])
	if err != nil {
		return "", nil, err
	}
	if b, err := encoding.DecodeString(fields[1]); err != nil || len(b) != idBytes {
		return "", nil, errors.New("the second field is not the id of a key: the line is what " +
			"`mooring key api new` prints after the word line")
	}
	k = &apiKey{id: fields[1], identity: identity}
	salt, hash, _ := strings.Cut(fields[2], ".")
	if !decodeExactly(k.salt[:], salt) || !decodeExactly(k.hash[:], hash) {
		return "", nil, errors.New("the third field is not salt.hash")
	}
	identity.key, identity.ref = k, refTo(k)
	for _, field := range fields[3:] {
		if err := identity.attribute(field); err != nil {
			return "", nil, err
		}
	}
	return fields[1], k, nil
}

// attribute reads a field of a key's line behind the hash.
func (id *Identity) attribute(field string) error {
	name, value, _ := strings.Cut(field, "=")
	claim, isClaim := strings.CutPrefix(name, claimPrefix)
	switch {
	case name+"=" == expiresField && id.Expires.IsZero():
		expires, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return errAttribute
		}
		id.Expires = expires
	case name == "groups" && value != "" && id.Groups == nil:
		id.Groups = groups(kindKeyName, strings.Split(value, ","))
	case isClaim && claim != "" && value != "" && id.Claims[claim] == nil:
		if id.Claims == nil {
			id.Claims = map[string]any{}
		}
		id.Claims[claim] = value
	default:
		return errAttribute
	}
	return nil
}

var errAttribute = errors.New("the fourth field, or one after it, is not expires= and a time " +
	"such as 2027-01-31T00:00:00Z, groups= and names with commas between them, or claim.NAME= " +
	"and a text; or it is repeated")

// claimPrefix begins the name of a claim in the line of a key.
const claimPrefix = "claim."

func decodeExactly(into []byte, text string) bool {
	b, err := encoding.DecodeString(text)
	return err == nil && copy(into, b) == len(into) && len(b) == len(into)
}

// Len returns the number of keys.
func (t *KeyTable) Len() int { return len(t.ids) }

// Describe returns one line for each key, with its principal and its id: what may be shown.
func (t *KeyTable) Describe() []string {
	lines := make([]string, len(t.ids))
	for i, id := range t.ids {
		who := t.byID[id].identity
		lines[i] = strings.TrimPrefix(who.Principal, kindKeyName) + " " + id
		if !who.Expires.IsZero() {
			lines[i] += " " + expiresField + who.Expires.Format(time.RFC3339)
		}
	}
	return lines
}

var (
	errKey        = &Error{Problem: Invalid, Message: "the API key is not valid"}
	errKeyExpired = &Error{Problem: Invalid, Message: "the API key has expired"}
)

// unknownKey stands for a key that is not in the table, so that the same work is done for it.
var unknownKey = &apiKey{}

// findKey returns whose key text is. The time that it takes does not depend on the secret, nor on
// whether there is a key with the id.
func findKey(t *KeyTable, text string, now time.Time) (*Identity, error) {
	if t == nil {
		return nil, invalid("this gateway accepts no API keys")
	}
	rest, ok := strings.CutPrefix(text, keyPrefix)
	if !ok || len(text) != keyLength || rest[idText] != '_' {
		return nil, errKey
	}
	var secret [secretBytes]byte
	if n, err := encoding.Decode(secret[:], []byte(rest[idText+1:])); err != nil ||
		n != secretBytes {
		return nil, errKey
	}
	k, known := t.byID[rest[:idText]]
	if !known {
		k = unknownKey
	}
	hash := hashKey(k.salt[:], secret[:])
	if subtle.ConstantTimeCompare(hash[:], k.hash[:]) != 1 || !known {
		return nil, errKey
	}
	if e := k.identity.Expires; !e.IsZero() && !now.Before(e) {
		return nil, errKeyExpired
	}
	return k.identity, nil
}
