// Package dataapi serves the Atlas Data API, whose service is gone, to the clients that were
// written for it. Its requests become calls of DocumentService, on the same connection as those of
// REST, so they pass the same interceptors.
//
// The package implements what its clients see: paths, bodies, plain JSON and errors in a shape of
// their own. It decides nothing about documents. Admission, limits and logs are those of
// package front.
package dataapi

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson/extjson"
	servicecall "github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/etag"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Config configures an API.
type Config struct {
	// Sources lists the names of dataSource that requests may have. All of them are the gateway's
	// one deployment.
	Sources []string
	// InsertStatus is the status of inserts: 201, which 0 means, or 200.
	InsertStatus int
}

// API serves the Atlas Data API on the port of REST. It is safe for concurrent use. New returns
// one.
type API struct {
	sources []string
	created int
}

var _ front.API = (*API)(nil)

// New returns an API.
func New(cfg Config) *API {
	if cfg.InsertStatus == 0 {
		cfg.InsertStatus = http.StatusCreated
	}
	return &API{sources: cfg.Sources, created: cfg.InsertStatus}
}

// Takes reports whether a path belongs to the API, even if it has no action.
func (a *API) Takes(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/app/") || strings.HasPrefix(r.URL.Path, "/action/")
}

// actionOf returns the action that a path names: /action/{op}, or the same after
// /app/{app}/endpoint/data/{v1 or beta}. The app may have any name.
func actionOf(path string) *action {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) == 7 && parts[0] == "app" && parts[1] != "" && parts[2] == "endpoint" &&
		parts[3] == "data" && (parts[4] == "v1" || parts[4] == "beta") {
		parts = parts[5:]
	}
	if len(parts) != 2 || parts[0] != "action" {
		return nil
	}
	return actions[parts[1]]
}

// Serve answers a request.
func (a *API) Serve(x *front.Exchange) {
	c := &call{api: a, x: x, mode: modeOf(x.Request().Header)}
	switch err := c.serve(); {
	case err == nil:
	case c.out.begun:
		_ = x.Explain(x.Request().Context(), err)
		panic(http.ErrAbortHandler) // only an incomplete body shows that documents are missing
	default:
		c.fail(x.Request().Context(), err)
	}
}

// call holds the state of one request.
type call struct {
	api  *API
	x    *front.Exchange
	mode extjson.Mode
	out  output
}

func (c *call) serve() error {
	r := c.x.Request()
	if err := c.x.Admit(func(ctx context.Context) (*caller.Identity, error) {
		return c.x.Identify(ctx, func(p *caller.Presented) { present(r.Header, p) })
	}); err != nil {
		return err
	}
	do := actionOf(r.URL.Path)
	if do == nil {
		return &rpcerr.Error{
			Reason:  rpcerr.RouteNotFound,
			Message: "there is no action at this path; the actions are " + names(),
		}
	}
	// For those in front of the handler. The app before the action may have any name.
	r.Pattern = r.URL.Path[strings.LastIndex(r.URL.Path, "/action/"):]
	if r.Method != http.MethodPost {
		c.x.Response.Header().Set("Allow", http.MethodPost)
		return &rpcerr.Error{
			Reason: rpcerr.MethodNotAllowed, Message: "an action is a POST, not a " + r.Method,
		}
	}
	c.x.Calls(do.rpc)
	if err := checkType(r.Header); err != nil {
		return err
	}
	if err := etag.Refuse(r.Method, r.Header); err != nil {
		return err
	}
	for _, name := range [...]string{front.SessionHeader, front.TransactionHeader} {
		if len(r.Header[name]) > 0 {
			return invalid(name, "no action takes it: call REST's path of the collection instead")
		}
	}
	timeout, err := c.x.Timeout(c.x.Request().URL.Query())
	if err != nil {
		return err
	}
	ctx, cancel := c.x.Context(timeout)
	defer cancel()
	in, err := c.read(do)
	if err != nil {
		return err
	}
	return do.run(ctx, c, in)
}

// read reads the body of an action.
func (c *call) read(do *action) (*input, error) {
	body, err := c.x.Body.ReadAll()
	if err != nil {
		return nil, err
	}
	defer body.Free()
	p := &parser{
		text: body.B, make: payload.NewMaker(&c.x.Memory, len(body.B)),
		most: c.x.MaxItems(), charge: c.x.Memory.Charge,
	}
	p.make.Legacy = true
	var in *input
	if err := c.x.Work(len(body.B), func() (err error) {
		in, err = p.input(do)
		return err
	}); err != nil {
		return nil, err
	}
	if !slices.Contains(c.api.sources, in.dataSource) {
		return nil, invalid("dataSource", "unknown data source; known are "+
			strings.Join(c.api.sources, ", "))
	}
	return in, nil
}

// in returns the context of a call on the connection within the process.
func (c *call) in(ctx context.Context) context.Context {
	return c.x.Incoming(ctx, nil, servicecall.Local{Text: true, Built: true, Whole: true})
}

// The headers with credentials, as net/http spells them.
const (
	authorization = "Authorization"
	jwtHeader     = "Jwttokenstring"
)

var credentialHeaders = []string{authorization, "Api-Key", "Apikey", jwtHeader}

// present adds the credentials that REST does not know: a token in jwtTokenString, which counts if
// there is neither Authorization nor an API key.
func present(h http.Header, p *caller.Presented) {
	if len(p.Authorization) > 0 || len(p.APIKey) > 0 {
		return
	}
	for _, token := range h[jwtHeader] {
		p.Authorization = append(p.Authorization, "Bearer "+token)
	}
}

// checkType refuses bodies of other types than JSON. A form, or no type at all, is what some
// clients send; it is tolerated with a credential in a header, since a page of another origin
// cannot send such a header without asking first.
func checkType(h http.Header) error {
	if coding := h.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return invalid("Content-Encoding", "compressed bodies are not supported")
	}
	text := h.Get("Content-Type")
	name, params, err := mime.ParseMediaType(text)
	if charset := params["charset"]; err == nil && charset != "" &&
		!strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "utf8") {
		return invalid("Content-Type", "the body must be UTF-8")
	}
	switch {
	case err == nil && (name == mediaJSON || name == mediaEJSON):
		return nil
	case text != "" && !slices.Contains(formTypes, name):
	case slices.ContainsFunc(credentialHeaders, func(k string) bool { return h[k] != nil }):
		return nil
	}
	return invalid("Content-Type", "send "+mediaJSON+" or "+mediaEJSON)
}

// The types of bodies.
const (
	mediaJSON  = "application/json"
	mediaEJSON = "application/ejson"
)

// formTypes lists the types that a page may send to another origin without asking.
var formTypes = []string{
	"application/x-www-form-urlencoded", "multipart/form-data", "text/plain",
}

// modeOf returns the form of the response: canonical if the client prefers application/ejson, else
// plain JSON, whatever it accepts.
func modeOf(h http.Header) extjson.Mode {
	chosen, ok := media.Accept(h["Accept"], []media.Type{media.JSON, media.EJSON})
	if ok && chosen.Type == media.EJSON {
		return extjson.Canonical
	}
	return extjson.Plain
}

// invalid returns the error of a header or field that is wrong.
func invalid(field, message string) error {
	return &rpcerr.Error{Reason: rpcerr.InvalidArgument, Field: field, Message: message}
}

// errMissing refuses a request without a field that its action needs.
type errMissing struct{ err error }

func (e *errMissing) Error() string { return e.err.Error() }

// Unwrap returns the error that the log shows.
func (e *errMissing) Unwrap() error { return e.err }

func missing(field string) error {
	return &errMissing{&rpcerr.Error{
		Reason: rpcerr.InvalidArgument, Field: field, Message: "this field is required",
	}}
}

// isMissing reports whether a client has presented no credential.
func isMissing(err error) bool {
	e, ok := errors.AsType[*caller.Error](err)
	return ok && e.Problem == caller.Missing
}
