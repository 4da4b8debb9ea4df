package oidc_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/auth/oidc"
	"github.com/mooringdb/mooring/internal/memhttp"
)

const resource = "api://mooring/x?a=b,c:d&e"

// metadata plays the metadata services.
func metadata(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case r.Host == "169.254.169.254" && r.URL.Path == "/metadata/identity/oauth2/token" &&
		r.Header.Get("Metadata") == "true" &&
		r.Header.Get("Accept") == "application/json" && q.Get("api-version") == "2018-02-01" &&
		q.Get("resource") == resource:
		if id := q.Get("client_id"); id == "bad" {
			http.Error(w, "Identity not found", http.StatusBadRequest)
		} else {
			fmt.Fprintf(w, `{"access_token": "azure-%s-%t", "expires_in": "3599"}`, id,
				q.Has("client_id"))
		}
	case r.Host == "metadata" &&
		r.URL.Path == "/computeMetadata/v1/instance/service-accounts/default/identity" &&
		r.Header.Get("Metadata-Flavor") == "Google" && q.Get("audience") == resource:
		fmt.Fprintln(w, "gcp-token")
	default:
		http.NotFound(w, r)
	}
}

func TestEnvironments(t *testing.T) {
	files := map[string]string{
		"/test": "test-token\n", "/azure": "aks-token", "/aws": "eks-token",
		"/var/run/secrets/kubernetes.io/serviceaccount/token": "pod-token", "/empty": "\n",
	}
	for _, tt := range []struct {
		name, user string
		env        map[string]string
		want, fail string
	}{
		{name: "test", env: map[string]string{"OIDC_TOKEN_FILE": "/test"}, want: "test-token"},
		{name: "test", fail: "OIDC_TOKEN_FILE is not set"},
		{name: "test", env: map[string]string{"OIDC_TOKEN_FILE": "/none"}, fail: "/none"},
		{name: "azure", want: "azure--false"},
		{name: "azure", user: "client&id", want: "azure-client&id-true"},
		{name: "azure", user: "bad", fail: `status 400: "Identity not found`},
		{name: "gcp", want: "gcp-token"},
		{name: "k8s", want: "pod-token"},
		{name: "k8s", env: map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": "/aws"}, want: "eks-token"},
		{name: "k8s", env: map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": "/aws", "AZURE_FEDERATED_TOKEN_FILE": "/azure"}, want: "aks-token"},
		{name: "k8s", env: map[string]string{"AZURE_FEDERATED_TOKEN_FILE": "/none"}, fail: "/none"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, err := oidc.Environment{
				Name: tt.name, Resource: resource,
				Transport: memhttp.New(t, http.HandlerFunc(metadata), ""),
				Getenv:    func(name string) string { return tt.env[name] },
				ReadFile: func(name string) ([]byte, error) {
					if text, ok := files[name]; ok {
						return []byte(text), nil
					}
					return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
				},
			}.Provider()
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Token(t.Context(), oidc.Request{Username: tt.user, Version: 1})
			if got.AccessToken != tt.want || (err == nil) != (tt.fail == "") ||
				err != nil && !strings.Contains(err.Error(), tt.fail) {
				t.Errorf("%s with %v: %s, %v, want %q, %q", tt.name, tt.env, got.AccessToken, err,
					tt.want, tt.fail)
			}
		})
	}
}

func TestUnknownEnvironment(t *testing.T) {
	for _, name := range []string{"", "aws", "AZURE"} {
		if _, err := (oidc.Environment{Name: name}).Provider(); err == nil {
			t.Errorf("there is an environment %q", name)
		}
	}
}

func TestParseAzure(t *testing.T) {
	for text, want := range map[string]oidc.Token{
		`{"access_token": "t", "expires_in": "3599", "refresh_token": ""}`: {AccessToken: "t", ExpiresIn: 3599 * time.Second},
		`{"access_token": "t", "expires_in": 60}`:                          {AccessToken: "t", ExpiresIn: time.Minute},
		`{"access_token": "t"}`:                                            {AccessToken: "t"},
		`{}`:                                                               {},
		`{"access_token": "secret", "expires_in": "soon"}`:                 {},
		`{"access_token": "secret", "expires_in": 1e300}`:                  {},
		`{"access_token": 1}`:                                              {},
		`<html>secret`:                                                     {},
	} {
		got, err := oidc.ParseAzure([]byte(text))
		if got != want || err != nil && strings.Contains(err.Error(), "secret") ||
			err == nil && want == (oidc.Token{}) && text != "{}" {
			t.Errorf("%s: %q %s, %v, want %q", text, got.AccessToken, got.ExpiresIn, err,
				want.AccessToken)
		}
	}
}

// TestMetadataThatHangs: the provider's own time bounds the request.
func TestMetadataThatHangs(t *testing.T) {
	for _, name := range []string{"azure", "gcp"} {
		synctest.Test(t, func(t *testing.T) {
			hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
			p, err := oidc.Environment{
				Name: name, Resource: resource,
				Transport: memhttp.New(t, http.HandlerFunc(hang), ""),
			}.Provider()
			if err != nil {
				t.Fatal(err)
			}
			for _, patience := range []time.Duration{time.Second, time.Hour} {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				start := time.Now()
				_, err = p.Token(ctx, oidc.Request{})
				if took := time.Since(start); err == nil || took != min(patience, time.Minute) {
					t.Errorf("%s: %v after %s", name, err, took)
				}
				cancel()
			}
		})
	}
}

func FuzzParseAzure(f *testing.F) {
	f.Add([]byte(`{"access_token": "t", "expires_in": "3599"}`))
	f.Add([]byte(`{"access_token": "t", "expires_in": -1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, err := oidc.ParseAzure(body); err != nil && got != (oidc.Token{}) {
			t.Errorf("a token beside the error %v", err)
		}
	})
}
