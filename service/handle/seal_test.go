package handle_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/handle"
)

func key(t testing.TB, b byte) handle.Key {
	t.Helper()
	k, err := handle.NewKey(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ring(t testing.TB, keys ...handle.Key) *handle.KeyRing {
	t.Helper()
	r, err := handle.NewKeyRing(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSeal(t *testing.T) {
	r := ring(t, key(t, 1))
	token := r.Seal("anna", []byte("text"))
	if plain, err := r.Open("anna", token); err != nil || string(plain) != "text" {
		t.Fatalf("Open = %q, %v", plain, err)
	}
	if again := r.Seal("anna", []byte("text")); again == token {
		t.Error("the same text sealed twice gives the same token")
	}
	if _, err := r.Open("berta", token); err == nil {
		t.Error("another principal opens the token")
	}
	for i := range token {
		for _, c := range []byte("A_") {
			changed := token[:i] + string(c) + token[i+1:]
			if changed == token {
				continue
			}
			if _, err := r.Open("anna", changed); err == nil {
				t.Errorf("a token changed at %d opens", i)
			}
		}
	}
	for _, bad := range []string{"", "x", token + "A", token[:len(token)-1], " " + token, token + "\n", strings.Repeat("A", 2000)} {
		if _, err := r.Open("anna", bad); err == nil {
			t.Errorf("Open(%q) opens", bad)
		}
	}
}

func TestKeyRotation(t *testing.T) {
	old, young := key(t, 1), key(t, 2)
	r := ring(t, old)
	first := r.Seal("", []byte("1"))
	if err := r.Replace(young, old); err != nil {
		t.Fatal(err)
	}
	second := r.Seal("", []byte("2"))
	for _, token := range []string{first, second} {
		if _, err := r.Open("", token); err != nil {
			t.Errorf("with both keys: %v", err)
		}
	}
	if _, err := ring(t, old).Open("", second); err == nil {
		t.Error("the old key opens what the young one sealed")
	}
	if err := r.Replace(young); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open("", first); err == nil {
		t.Error("a key that is gone still opens")
	}
	if err := r.Replace(); err == nil {
		t.Error("a ring without keys")
	}
	if a, b := ring(t), ring(t); !a.Ephemeral() || r.Ephemeral() {
		t.Error("Ephemeral is wrong")
	} else if _, err := b.Open("", a.Seal("", nil)); err == nil {
		t.Error("two made-up keys are the same")
	}
}

func TestParseKeys(t *testing.T) {
	secret := bytes.Repeat([]byte{0xFB}, 33)
	std, url := base64.StdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret)
	short := base64.StdEncoding.EncodeToString(secret[:31])
	for _, test := range []struct {
		name, text string
		want       int
		err        string
	}{
		{name: "empty", text: "\n"},
		{name: "one", text: std, want: 1},
		{name: "two and comments", text: "# first seals\n" + std + "\r\n\n  " + url + "  \n", want: 2},
		{name: "short", text: std + "\n" + short, err: "line 2: handle key has 31 bytes, wants 32 or more"},
		{name: "no base64", text: "?", err: "line 1: handle key is not base64"},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys, err := handle.ParseKeys([]byte(test.text))
			if got := fmt.Sprint(err); test.err != "" && got != test.err || test.err == "" && err != nil {
				t.Errorf("err = %v, want %v", err, test.err)
			}
			if len(keys) != test.want {
				t.Errorf("%d keys, want %d", len(keys), test.want)
			}
			if text := fmt.Sprintf("%v %+v %#v", keys, keys, keys); strings.Contains(text, "251") || strings.Contains(strings.ToLower(text), "0xfb") {
				t.Errorf("keys print as %s", text)
			}
		})
	}
}

func FuzzDecodeClaim(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0})
	f.Add(append([]byte{1, 1, 'd', 0}, bytes.Repeat([]byte{0}, 60)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		again, err := handle.DecodeClaim(b)
		if err != nil {
			return
		}
		third, err := handle.DecodeClaim(again)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("% x decodes to % x, and that to % x, %v", b, again, third, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	r := ring(f, key(f, 1))
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := r.Open("", token); err == nil {
			t.Fatalf("%q opens", token)
		}
	})
}
