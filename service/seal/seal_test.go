package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/seal"
)

func key(t testing.TB, b byte) seal.Key {
	t.Helper()
	k, err := seal.NewKey(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ring(t testing.TB, keys ...seal.Key) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var here = seal.NewDeployment("here")

// saying returns a claim of a cursor.
func saying(body string) seal.Claim {
	return seal.Claim{Kind: seal.KindCursor, Deployment: here, Body: []byte(body)}
}

func open(r *seal.Ring, principal, token string) (seal.Claim, error) {
	return r.Open(principal, token, seal.KindCursor, here)
}

func TestSeal(t *testing.T) {
	r := ring(t, key(t, 1))
	token := r.Seal("anna", saying("text"))
	if c, err := open(r, "anna", token); err != nil || !reflect.DeepEqual(c, saying("text")) {
		t.Fatalf("Open = %+v, %v", c, err)
	}
	if again := r.Seal("anna", saying("text")); again == token {
		t.Error("the same text sealed twice gives the same token")
	}
	for i := range token {
		for _, c := range []byte("A_") {
			changed := token[:i] + string(c) + token[i+1:]
			if changed == token {
				continue
			}
			if _, err := open(r, "anna", changed); err == nil {
				t.Errorf("a token changed at %d opens", i)
			}
		}
	}
	for _, bad := range []string{
		"", "x", token + "A", token[:len(token)-1], " " + token, token + "\n", strings.Repeat("A", 2000),
	} {
		if _, err := open(r, "anna", bad); err == nil {
			t.Errorf("Open(%q) opens", bad)
		}
	}
}

// TestForWhom checks that a token opens only for its principal, and as what it was made for.
func TestForWhom(t *testing.T) {
	r := ring(t, key(t, 1))
	token := r.Seal("anna", saying("text"))
	for name, open := range map[string]func() (seal.Claim, error){
		"another principal": func() (seal.Claim, error) { return open(r, "berta", token) },
		"another key":       func() (seal.Claim, error) { return open(ring(t, key(t, 2)), "anna", token) },
		"a session":         func() (seal.Claim, error) { return r.Open("anna", token, seal.KindSession, here) },
		"a transaction":     func() (seal.Claim, error) { return r.Open("anna", token, seal.KindTransaction, here) },
		"a ticket":          func() (seal.Claim, error) { return r.Open("anna", token, seal.KindTicket, here) },
		"another deployment": func() (seal.Claim, error) {
			return r.Open("anna", token, seal.KindCursor, seal.NewDeployment("there"))
		},
	} {
		if c, err := open(); !errors.Is(err, seal.ErrToken) || c.Body != nil {
			t.Errorf("%s: Open = %+v, %v, want %v", name, c, err, seal.ErrToken)
		}
	}
}

// TestExpires checks when a token ends: MaxSkew after what it says, and never if it says nothing.
func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ring(t, key(t, 1))
		never := r.Seal("", saying("never"))
		c := saying("soon")
		c.Expires = time.Now().Add(time.Second).Truncate(time.Millisecond)
		soon := r.Seal("", c)
		for _, row := range []struct {
			after time.Duration
			want  error
		}{
			{0, nil}, {time.Second + seal.MaxSkew - 1, nil}, {1, seal.ErrExpired}, {time.Hour, seal.ErrExpired},
		} {
			time.Sleep(row.after) //nolint:forbidigo // fake time
			if got, err := open(r, "", soon); !errors.Is(err, row.want) ||
				string(got.Body) != "soon" || !got.Expires.Equal(c.Expires) {
				t.Errorf("%s later: Open = %+v, %v, want %v", row.after, got, err, row.want)
			}
		}
		if got, err := open(r, "", never); err != nil || !got.Expires.IsZero() {
			t.Errorf("Open = %+v, %v, of a token that does not expire", got, err)
		}
	})
}

// TestTickets checks that a ticket can be longer than the other tokens.
func TestTickets(t *testing.T) {
	r := ring(t, key(t, 1))
	c := saying(strings.Repeat("x", seal.MaxTicketBody))
	c.Kind = seal.KindTicket
	ticket := r.Seal("", c)
	got, err := r.Open("", ticket, seal.KindTicket, here)
	if err != nil || !bytes.Equal(got.Body, c.Body) || len(ticket) > seal.MaxTicketBytes {
		t.Errorf("Open = %d bytes, %v, of a ticket of %d", len(got.Body), err, len(ticket))
	}
	c.Body = append(c.Body, "123..."...)
	if _, err := r.Open("", r.Seal("", c), seal.KindTicket, here); err == nil {
		t.Error("a ticket that is too long opens")
	}
	if _, err := open(r, "", r.Seal("", saying(string(c.Body)))); err == nil {
		t.Error("a token that is as long as a ticket opens")
	}
}

func TestKeyRotation(t *testing.T) {
	old, young := key(t, 1), key(t, 2)
	r := ring(t, old)
	first := r.Seal("", saying("1"))
	if err := r.Replace(young, old); err != nil {
		t.Fatal(err)
	}
	second := r.Seal("", saying("2"))
	for _, token := range []string{first, second} {
		if _, err := open(r, "", token); err != nil {
			t.Errorf("with both keys: %v", err)
		}
	}
	if _, err := open(ring(t, old), "", second); err == nil {
		t.Error("the old key opens what the young one sealed")
	}
	if err := r.Replace(young); err != nil {
		t.Fatal(err)
	}
	if _, err := open(r, "", first); err == nil {
		t.Error("a key that is gone still opens")
	}
	if err := r.Replace(); err == nil {
		t.Error("a ring without keys")
	}
	if a, b := ring(t), ring(t); !a.Ephemeral() || r.Ephemeral() {
		t.Error("Ephemeral is wrong")
	} else if _, err := open(b, "", a.Seal("", saying(""))); err == nil {
		t.Error("two made-up keys are the same")
	}
}

// The same keys give the same transport keys, in their order. Different keys give other transport
// keys, and no transport key is a key that seals.
func TestTransportKeys(t *testing.T) {
	one, two := key(t, 1), key(t, 2)
	r := ring(t, one, two)
	keys, same := r.TransportKeys(), ring(t, two, one).TransportKeys()
	if len(keys) != 2 || !keys[0].Equal(same[1]) || !keys[1].Equal(same[0]) ||
		keys[0].Equal(keys[1]) {
		t.Errorf("keys %v and %v", keys, same)
	}
	if err := r.Replace(key(t, 3)); err != nil {
		t.Fatal(err)
	}
	if young := r.TransportKeys(); len(young) != 1 || young[0].Equal(keys[0]) {
		t.Errorf("after a rotation: %v", young)
	}
}

// The steps of docs/operations.md: a new key is added last, and moved first when all replicas have
// read it. The old key is removed when its tokens have expired. Replicas before and behind a step
// open each other's tokens. A new key that goes first breaks that.
func TestKeyRotationSteps(t *testing.T) {
	old, young := key(t, 1), key(t, 2)
	steps := [][]seal.Key{{old}, {old, young}, {young, old}, {young}}
	opens := func(sealer, opener []seal.Key) bool {
		_, err := open(ring(t, opener...), "", ring(t, sealer...).Seal("", saying("")))
		return err == nil
	}
	for i := range len(steps) - 1 {
		before, behind := steps[i], steps[i+1]
		// the old key's tokens have expired before the last step
		if !opens(before, behind) && i < 2 {
			t.Errorf("step %d: a replica behind it cannot open the tokens of one before it", i+1)
		}
		if !opens(behind, before) {
			t.Errorf("step %d: a replica before it cannot open the tokens of one behind it", i+1)
		}
	}
	if opens([]seal.Key{young, old}, []seal.Key{old}) {
		t.Error("a new key may go first at once")
	}
}

// A key without a secret is refused: every gateway would derive the same keys from it.
func TestEmptyKey(t *testing.T) {
	for _, keys := range [][]seal.Key{{{}}, {key(t, 1), {}}} {
		if _, err := seal.NewRing(keys...); err == nil {
			t.Errorf("a ring of %d keys, one of them empty", len(keys))
		}
		if err := ring(t, key(t, 2)).Replace(keys...); err == nil {
			t.Error("Replace takes an empty key")
		}
	}
	if _, err := seal.NewKey(nil); err == nil {
		t.Error("NewKey takes an empty secret")
	}
}

// A token of an unknown layout is refused as such and never misread.
func TestUnknownVersion(t *testing.T) {
	r := ring(t, key(t, 1))
	b, err := base64.RawURLEncoding.DecodeString(r.Seal("", saying("text")))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []byte{0, 1, b[0] + 1, 255} {
		b[0] = v
		if _, err := open(r, "", base64.RawURLEncoding.EncodeToString(b)); !errors.Is(err,
			seal.ErrVersion) {
			t.Errorf("version %d: %v, want %v", v, err, seal.ErrVersion)
		}
	}
}

// A ring has only its current keys: those of tokens that can still be opened.
func TestHas(t *testing.T) {
	r := ring(t, key(t, 1))
	old := r.SealerID()
	if err := r.Replace(key(t, 2), key(t, 1)); err != nil {
		t.Fatal(err)
	}
	if young := r.SealerID(); young == old || !r.Has(young) || !r.Has(old) {
		t.Error("a ring of two keys lacks one")
	}
	if err := r.Replace(key(t, 2)); err != nil {
		t.Fatal(err)
	}
	if r.Has(old) {
		t.Error("a key that was removed is in the ring")
	}
}

func TestParseKeys(t *testing.T) {
	// With both characters in which the two alphabets differ.
	secret := append([]byte("0123456789abcdef"), bytes.Repeat([]byte{0xFB}, 17)...)
	std, url := base64.StdEncoding.EncodeToString(secret),
		base64.RawURLEncoding.EncodeToString(secret)
	short := base64.StdEncoding.EncodeToString(secret[:31])
	for _, test := range []struct {
		name, text string
		want       int
		err        string
	}{
		{name: "empty", text: "\n"},
		{name: "one", text: std, want: 1},
		{name: "two and comments", text: "# first seals\n" + std + "\r\n\n  " + url + "  \n", want: 2},
		{name: "short", text: std + "\n" + short, err: "line 2: key has 31 bytes, must have at least 32"},
		{name: "zeros", text: base64.StdEncoding.EncodeToString(make([]byte, 32)), err: "line 1: key is not random: make one with mooring key new"},
		{name: "a word", text: base64.StdEncoding.EncodeToString([]byte("passwordpasswordpasswordpassword")), err: "line 1: key is not random: make one with mooring key new"},
		{name: "no base64", text: "?", err: "line 1: key is not base64"},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys, err := seal.ParseKeys([]byte(test.text))
			if got := fmt.Sprint(err); test.err != "" && got != test.err ||
				test.err == "" && err != nil {
				t.Errorf("err = %v, want %v", err, test.err)
			}
			if len(keys) != test.want {
				t.Errorf("%d keys, want %d", len(keys), test.want)
			}
			if text := fmt.Sprintf("%v %+v %#v", keys, keys, keys); strings.Contains(text, "251") ||
				strings.Contains(strings.ToLower(text), "0xfb") {
				t.Errorf("keys print as %s", text)
			}
		})
	}
}

// FuzzOpen opens any text as a token, which no key has sealed, and tokens of any claim.
func FuzzOpen(f *testing.F) {
	r := ring(f, key(f, 1))
	f.Add("", []byte(nil), int64(0))
	f.Add("Ag", []byte("text"), time.Now().UnixMilli())
	f.Add(strings.Repeat("A", 100), []byte{0}, int64(-1))
	f.Fuzz(func(t *testing.T, token string, body []byte, expires int64) {
		if _, err := open(r, "", token); err == nil {
			t.Fatalf("%q opens", token)
		}
		c := saying(string(body))
		if expires != 0 {
			c.Expires = time.UnixMilli(expires)
		}
		got, err := open(r, "", r.Seal("", c))
		switch {
		case errors.Is(err, seal.ErrToken) && len(body) > 600: // too long
		case err != nil && !errors.Is(err, seal.ErrExpired):
			t.Errorf("Open = %v", err)
		case !bytes.Equal(got.Body, body) || !got.Expires.Equal(c.Expires):
			t.Errorf("Open = %+v, want %+v", got, c)
		}
	})
}

// TestDigest: only the same key gives the same digest, and texts are kept apart.
func TestDigest(t *testing.T) {
	digester := func(secret byte) seal.Digester {
		t.Helper()
		d, err := seal.NewDigester(key(t, secret))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := digester(1).Digest([]byte("a"), []byte("bc"))
	const known = "d1eec1ee18967c7c331ab88b196fac02003bc4da0439701a05ade63b15edde68"
	if got := fmt.Sprintf("%x", want); got != known {
		t.Errorf("the digest is %s, want %s: writes with a key would be repeated after an upgrade",
			got, known)
	}
	if got := digester(1).Digest([]byte("a"), []byte("bc")); got != want {
		t.Errorf("the digest is %x, want %x", got, want)
	}
	for name, got := range map[string][32]byte{
		"another key": digester(2).Digest([]byte("a"), []byte("bc")),
		"other texts": digester(1).Digest([]byte("ab"), []byte("c")),
		"one text":    digester(1).Digest([]byte("abc")),
	} {
		if got == want {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	if !digester(1).Equal(digester(1)) || digester(1).Equal(digester(2)) {
		t.Error("Equal does not compare keys")
	}
}
