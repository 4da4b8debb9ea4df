// Package console serves the gateway's console, a page for operators and developers, on the port of
// REST. The page uses the API as any other client does, with a credential that its user gives it;
// what the package serves is the same for everyone, and needs none.
//
// The files in dist are built from web/ by make console. The package makes no call and knows no
// document.
package console

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/etag"
	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/rpcerr"
)

//go:embed dist
var dist embed.FS

// Root is the path of the console.
const Root = "/console/"

// reference is the path of the API's reference, which is a view of the console.
const reference = "/docs"

// policy is what a browser lets the page do: run scripts and use styles that are files of this
// origin, call this origin, and nothing else. No page can frame it, and no text becomes a script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// pageHeaders are the headers of all responses, beside those of package front.
var pageHeaders = map[string]string{
	"Content-Security-Policy":      policy,
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Referrer-Policy":              "no-referrer",
	"X-Frame-Options":              "DENY",
	"Vary":                         "Accept-Encoding",
}

// Config configures an API.
type Config struct {
	// SignIn says that clients are authenticated, so that the page asks its user for a credential.
	SignIn bool
	// OIDC has people sign in at the issuer of tokens, too. Nil: it does not.
	OIDC *OIDC
}

// settings is the path of what the page must know before its first call.
const settings = "settings.json"

// principal is the path that says who a credential is of. It is refused without one that counts.
const principal = "principal.json"

// API serves the console. It is safe for concurrent use. New returns one.
type API struct {
	files map[string]*file // by path below Root
	oidc  *OIDC            // nil: there is none
}

var _ front.API = (*API)(nil)

// New returns an API.
func New(config Config) (*API, error) {
	files, err := load(dist)
	if err != nil {
		return nil, err
	}
	files[settings] = newFile(settings, deflate(fmt.Appendf(nil, `{"signIn":%t,"oidc":%t}`,
		config.SignIn, config.OIDC != nil)))
	return &API{files, config.OIDC}, nil
}

// Takes reports whether a path belongs to the console, even if there is no file.
func (a *API) Takes(r *http.Request) bool {
	path := r.URL.Path
	return strings.HasPrefix(path, Root) || path == strings.TrimSuffix(Root, "/") ||
		path == reference
}

// Serve answers a request.
func (a *API) Serve(x *front.Exchange) {
	r := x.Request()
	flood.From(r.Context()).Waste() // it needs no credential
	for name, value := range pageHeaders {
		x.Response.Header().Set(name, value)
	}
	if err := a.serve(x); err != nil {
		fail(x, err)
	}
}

func (a *API) serve(x *front.Exchange) error {
	r, header := x.Request(), x.Response.Header()
	var id *caller.Identity // nil: anyone may have the file
	if err := x.Admit(func(ctx context.Context) (_ *caller.Identity, err error) {
		if r.URL.Path == Root+principal {
			id, err = x.Identify(ctx, nil)
		}
		return id, err
	}); err != nil {
		return err
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		return &rpcerr.Error{
			Reason:  rpcerr.MethodNotAllowed,
			Message: "the console takes GET, HEAD, not " + r.Method,
		}
	}
	name, below := strings.CutPrefix(r.URL.Path, Root)
	if !below {
		to := "console/" // a proxy may have a path before it
		if r.URL.Path == reference {
			to += "#/api"
		}
		header.Set("Location", to)
		x.Response.WriteHeader(http.StatusPermanentRedirect)
		return nil
	}
	if name == "" {
		name = index
	}
	switch {
	case name == principal:
		return servePrincipal(x, id)
	case name == provider && a.oidc != nil:
		return a.oidc.serve(x)
	case name == index && a.oidc != nil:
		header.Set("Content-Security-Policy", a.oidc.policy(r.Context()))
	}
	f := a.files[name]
	if f == nil {
		return &rpcerr.Error{
			Reason: rpcerr.RouteNotFound, Message: "the console has no such file",
		}
	}
	return f.serve(x)
}

// servePrincipal answers with the name of the client, so that the page can tell whether a
// credential counts before it makes a call with it.
func servePrincipal(x *front.Exchange, id *caller.Identity) error {
	var name string
	if id != nil {
		name = id.Principal
	}
	return answer(x, map[string]string{"principal": name})
}

// answer answers with JSON that is of no use later.
func answer(x *front.Exchange, of any) error {
	text, err := json.Marshal(of)
	if err != nil {
		return err
	}
	header := x.Response.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", mediaTypes[".json"])
	write(x, http.StatusOK, text)
	return nil
}

// serve answers with the file, as it is or compressed.
func (f *file) serve(x *front.Exchange) error {
	r, header := x.Request(), x.Response.Header()
	compressed := coding.Takes(r.Header["Accept-Encoding"], coding.Gzip)
	tag, text := f.tag, f.gzip
	if compressed {
		tag += "-gzip"
		header.Set("Content-Encoding", coding.Gzip.String())
	} else {
		text = f.plain()
	}
	header.Set("Cache-Control", f.cache)
	header.Set("Content-Type", f.mediaType)
	header.Set("Etag", `"`+tag+`"`)
	had, err := etag.Parse("If-None-Match", r.Header["If-None-Match"])
	if err != nil {
		return err
	}
	for _, t := range had {
		if t.Any() || strings.TrimPrefix(t.String(), "W/") == `"`+tag+`"` {
			header.Del("Content-Encoding")
			x.Response.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	write(x, http.StatusOK, text)
	return nil
}

// fail answers with the message of an error as text.
func fail(x *front.Exchange, err error) {
	failed := x.Explain(x.Request().Context(), err).HTTP()
	x.Response.SetRetryAfter(failed)
	x.Response.Header().Set("Content-Type", "text/plain; charset=utf-8")
	write(x, failed.Code, []byte(failed.Body.GetError().GetMessage()+"\n"))
}
