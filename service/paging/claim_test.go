package paging_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/seal"
)

// TestLongestToken seals a token with the longest of everything that is in it. docs/api.md promises
// tokens of 1 KiB.
func TestLongestToken(t *testing.T) {
	f := newFixture(t, func(c *paging.Config) {
		c.Deployment = strings.Repeat("host,", 1000)
		c.Replica = strings.Repeat("r", paging.MaxReplicaBytes)
	})
	if token := f.r.TokenOf(f.s.find(9, 2, 0), math.MaxUint64); len(token) > seal.MaxTokenBytes {
		t.Errorf("a token of %d bytes, want at most %d", len(token), seal.MaxTokenBytes)
	}
}

// FuzzDecodeClaim checks that a claim has one encoding, and that no bytes make decodeClaim panic.
func FuzzDecodeClaim(f *testing.F) {
	for _, address := range []string{"", "gateway:1"} {
		f.Add(paging.NewClaim(address))
	}
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		again, err := paging.DecodeClaim(b)
		if err != nil {
			return
		}
		if twice, err := paging.DecodeClaim(again); err != nil || !bytes.Equal(twice, again) {
			t.Errorf("%x is encoded again as %x, and that as %x, %v", b, again, twice, err)
		}
	})
}

// TestOtherDeployment checks that a token is valid only for the deployment that it was made for.
func TestOtherDeployment(t *testing.T) {
	f := newFixture(t, nil)
	page := f.open(10, 2, 1)
	other := f.start(func(c *paging.Config) { c.Deployment = "another" })
	_, err := other.Next(t.Context(), paging.Asking{Principal: "anna", Token: page.Token})
	if !errors.Is(err, paging.ErrCursorNotFound) {
		t.Errorf("Next = %v, want ErrCursorNotFound", err)
	}
}
