package ocsp

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	xocsp "golang.org/x/crypto/ocsp"
)

const (
	// maxResponse bounds how much of an answer is read; real ones have two kilobytes.
	maxResponse = 64 << 10

	// maxGet is the longest URL of a GET request, as RFC 5019 section 5 has it.
	maxGet = 255

	requestType  = "application/ocsp-request"
	responseType = "application/ocsp-response"
)

// responders returns the URLs that cert names and that can be asked.
func responders(cert *x509.Certificate) []string {
	return slices.DeleteFunc(slices.Clone(cert.OCSPServer), func(text string) bool {
		u, err := url.Parse(text)
		return err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == ""
	})
}

// askAll asks all responders at once. The first conclusive answer ends it. Otherwise the result
// is Unknown if one of them said so, or None. No request is in flight when it returns.
func askAll(ctx context.Context, client *http.Client, cert, issuer *x509.Certificate) Response {
	request, err := xocsp.CreateRequest(cert, issuer, nil)
	if err != nil {
		return Response{}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer client.CloseIdleConnections() // ends dials that their requests did not wait for
	urls := responders(cert)
	answers := make(chan Response) // the reader takes one value from each sender
	for _, u := range urls {
		go func() { answers <- askOne(ctx, client, u, request, cert, issuer) }()
	}
	var best Response
	for range urls {
		r := <-answers
		if r.Status > best.Status && best.Status < Good {
			best = r
		}
		if best.Status >= Good {
			cancel()
		}
	}
	return best
}

// askOne asks one responder. Every error counts as no answer: the check fails softly.
func askOne(
	ctx context.Context, client *http.Client, u string, request []byte,
	cert, issuer *x509.Certificate,
) Response {
	der, err := fetch(ctx, client, u, request)
	if err != nil {
		return Response{}
	}
	r, err := Parse(der, cert, issuer, time.Now())
	if err != nil {
		return Response{}
	}
	return r
}

// fetch sends short requests by GET, which lets HTTP caches answer, and others by POST. It also
// uses POST if the responder does not accept GET.
func fetch(ctx context.Context, client *http.Client, u string, request []byte) ([]byte, error) {
	get := strings.TrimSuffix(u, "/") + "/" +
		url.QueryEscape(base64.StdEncoding.EncodeToString(request))
	if len(get) <= maxGet {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, get, nil)
		if err != nil {
			return nil, err
		}
		body, err := do(client, req)
		if _, refused := errors.AsType[statusError](err); !refused {
			return body, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", requestType)
	return do(client, req)
}

// statusError reports an HTTP status other than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("HTTP status %d", int(e)) }

func do(client *http.Client, req *http.Request) ([]byte, error) {
	req.Header.Set("Accept", responseType)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp.StatusCode)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxResponse))
}
