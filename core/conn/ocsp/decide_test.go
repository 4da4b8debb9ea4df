package ocsp_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/conn/ocsp"
)

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name string
		e    ocsp.Evidence
		want ocsp.Verdict
	}{
		{"nothing known", ocsp.Evidence{}, ocsp.Accept},
		{"nothing known, responders", ocsp.Evidence{MayAsk: true}, ocsp.Ask},
		{"staple good", ocsp.Evidence{Staple: ocsp.Good, MayAsk: true}, ocsp.Accept},
		{"staple good, demanded", ocsp.Evidence{MustStaple: true, Staple: ocsp.Good, MayAsk: true}, ocsp.Accept},
		{"staple revoked", ocsp.Evidence{Staple: ocsp.Revoked, Cache: ocsp.Good}, ocsp.RefuseRevoked},
		{"staple older than the cache", ocsp.Evidence{Staple: ocsp.Good, Cache: ocsp.Revoked}, ocsp.RefuseRevoked},
		{"staple unknown", ocsp.Evidence{Staple: ocsp.Unknown, MayAsk: true}, ocsp.Ask},
		{"staple unknown, cache good", ocsp.Evidence{Staple: ocsp.Unknown, Cache: ocsp.Good, MayAsk: true}, ocsp.Accept},
		{"staple invalid", ocsp.Evidence{Staple: ocsp.Invalid, Cache: ocsp.Good, MayAsk: true}, ocsp.RefuseInvalidStaple},
		{"no staple, demanded", ocsp.Evidence{MustStaple: true, Cache: ocsp.Good, MayAsk: true}, ocsp.RefuseMissingStaple},
		{"no staple, demanded, no responders", ocsp.Evidence{MustStaple: true}, ocsp.RefuseMissingStaple},
		{"cache good", ocsp.Evidence{Cache: ocsp.Good, MayAsk: true}, ocsp.Accept},
		{"cache revoked", ocsp.Evidence{Cache: ocsp.Revoked, MayAsk: true}, ocsp.RefuseRevoked},
		{"responder good", ocsp.Evidence{Responder: ocsp.Good}, ocsp.Accept},
		{"responder revoked", ocsp.Evidence{Responder: ocsp.Revoked}, ocsp.RefuseRevoked},
		{"responder unknown", ocsp.Evidence{Responder: ocsp.Unknown}, ocsp.Accept},
		{"responder down", ocsp.Evidence{Responder: ocsp.None}, ocsp.Accept},
		{"intermediate revoked", ocsp.Evidence{Staple: ocsp.Good, Intermediates: ocsp.Revoked}, ocsp.RefuseRevoked},
	} {
		if got := ocsp.Decide(tt.e); got != tt.want {
			t.Errorf("%s: Decide(%+v) = %v, want %v", tt.name, tt.e, got, tt.want)
		}
	}
}
