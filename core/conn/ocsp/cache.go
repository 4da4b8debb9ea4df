package ocsp

import (
	"crypto"
	"crypto/x509"
	"time"
)

// certKey identifies a certificate as RFC 6960's CertID does, always with the same hash
// algorithm, whichever the responder used.
type certKey struct{ issuerName, issuerKey, serial string }

func keyOf(cert, issuer *x509.Certificate) (certKey, bool) {
	name, key, err := issuerHashes(issuer, crypto.SHA256)
	return certKey{string(name), string(key), string(cert.SerialNumber.Bytes())}, err == nil
}

// cache keeps conclusive responses until they expire, at most size of them. It has no lock of its
// own.
type cache struct {
	size    int
	entries map[certKey]Response
}

// get returns the response for key that is valid now, or the zero Response.
func (c *cache) get(key certKey, now time.Time) Response {
	r, ok := c.entries[key]
	if !ok {
		return Response{}
	}
	if !isCurrent(r, now) {
		if !now.Before(r.NextUpdate) {
			delete(c.entries, key)
		}
		return Response{}
	}
	return r
}

// put keeps r unless it is inconclusive, does not say how long it is valid, or is older than the
// kept one. Of two responses, the one with the later nextUpdate is newer, then the one with the
// later thisUpdate.
func (c *cache) put(key certKey, r Response) {
	if r.Status != Good && r.Status != Revoked || r.NextUpdate.IsZero() {
		return
	}
	if old, ok := c.entries[key]; ok {
		if isNewer(r, old) {
			c.entries[key] = r
		}
		return
	}
	if len(c.entries) >= c.size {
		c.evict()
	}
	c.entries[key] = r
}

// evict makes room by removing the entry that expires first.
func (c *cache) evict() {
	var victim certKey
	var first time.Time
	for key, r := range c.entries {
		if first.IsZero() || r.NextUpdate.Before(first) {
			victim, first = key, r.NextUpdate
		}
	}
	delete(c.entries, victim)
}

func isCurrent(r Response, now time.Time) bool {
	return !now.Before(r.ThisUpdate) && now.Before(r.NextUpdate)
}

func isNewer(r, old Response) bool {
	if !r.NextUpdate.Equal(old.NextUpdate) {
		return r.NextUpdate.After(old.NextUpdate)
	}
	return r.ThisUpdate.After(old.ThisUpdate)
}
