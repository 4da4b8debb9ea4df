// Package fetch gets a credential from an HTTP endpoint (one request, one small answer) or from a
// file. Time and memory are bounded whatever the endpoint does, redirects are not followed, and
// errors do not repeat secrets. It caches nothing.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	maxBody   = 64 << 10 // the largest credential documents are a tenth of it
	maxHeader = 64 << 10
	maxText   = 512 // of an endpoint's words in an error
	minSecret = 8   // of a name at the end of a path; shorter ones are words
)

// Request describes one question to an endpoint.
type Request struct {
	Method string
	URL    string
	Header map[string]string
	Form   url.Values // the body of a POST

	// Secrets are values in the request that no error may repeat, even if the endpoint does. The
	// path and the query of URL are such: in ECS the path is what yields the credentials.
	Secrets []string

	// Proxied sends the request through the proxy that the environment names, if any. An endpoint
	// of the machine itself is always asked directly.
	Proxied bool

	// Timeout bounds the request as a whole, the body included.
	Timeout time.Duration
}

// Do sends the request and returns the body of an answer of status 200. It blocks until the answer
// is complete, the timeout has passed or ctx ends. A nil transport stands for the network.
func Do(ctx context.Context, transport http.RoundTripper, r Request) ([]byte, error) {
	u, err := url.Parse(r.URL)
	if err != nil { // with the whole URL in it
		return nil, errors.New("the endpoint's URL cannot be parsed")
	}
	body, err := r.do(ctx, transport, u)
	if err != nil {
		return nil, fmt.Errorf("%s %s://%s: %w", r.Method, u.Scheme, u.Host, err)
	}
	return body, nil
}

func (r Request) do(ctx context.Context, transport http.RoundTripper, u *url.URL) ([]byte, error) {
	slow := fmt.Errorf("no complete response within %s", r.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, r.Timeout, slow)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), r.body())
	if err != nil {
		return nil, withoutURL(err)
	}
	for k, v := range r.Header {
		req.Header.Set(k, v)
	}
	if r.Form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if transport == nil {
		own := network(r.Proxied)
		defer own.CloseIdleConnections() // ends a dial that the request did not wait for
		transport = own
	}
	client := http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, because(ctx, withoutURL(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, because(ctx, err)
	case len(body) > maxBody:
		return nil, fmt.Errorf("the response is larger than %d bytes", maxBody)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("status %d: %s", resp.StatusCode, r.masked(u, string(body)))
	}
	return body, nil
}

func (r Request) body() io.Reader {
	if r.Form == nil {
		return nil
	}
	return strings.NewReader(r.Form.Encode())
}

// dial opens a connection of network; tests replace it.
var dial = (&net.Dialer{}).DialContext

// network connects anew for each request: an endpoint is asked once in a while, and no idle
// connection stays behind.
func network(proxied bool) *http.Transport {
	t := &http.Transport{
		DialContext:            dial,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	if proxied {
		t.Proxy = http.ProxyFromEnvironment
	}
	return t
}

// because returns why ctx ended, if that is why err happened.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// withoutURL takes off what net/http adds: a URL may carry a secret in its query.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// masked returns the beginning of an endpoint's words on one line, without the request's secrets.
func (r Request) masked(u *url.URL, text string) string {
	secrets := append(slices.Clone(r.Secrets), u.RequestURI(), u.Path, u.RawQuery)
	if name := path.Base(u.Path); len(name) >= minSecret {
		secrets = append(secrets, name)
	}
	for _, s := range secrets {
		if s != "" && s != "/" {
			text = strings.NewReplacer(s, "***", url.QueryEscape(s), "***").Replace(text)
		}
	}
	return fmt.Sprintf("%.*q", maxText, text)
}

// File reads a small regular file, as a token is in. A pipe would block the caller, whatever its
// context says.
func File(name string) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxBody {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxBody)
	}
	return b, nil
}
