package pagers_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// api reads results. All methods may be called at any time.
type api interface {
	// first returns the first page of a collection, or all of it.
	first(ctx context.Context, c *collection) (page, error)
	// next returns the page that token stands for.
	next(ctx context.Context, token string) (page, error)
	// want returns document i of a collection as this API sends it.
	want(c *collection, i int) []byte
}

type page struct {
	documents [][]byte
	token     string // empty: this is the last page
}

// failure is an error that a gateway answered with.
type failure struct {
	status int // of HTTP
	reason string
	retry  string
	after  time.Duration // Retry-After
}

func (f *failure) Error() string { return fmt.Sprintf("%d %s", f.status, f.reason) }

// errCut is the error of a response that had status 200 and is not whole.
var errCut = errors.New("cut body")

// overHTTP makes calls through a load balancer.
type overHTTP struct {
	url    string
	client *http.Client
}

// post makes a call and reads the answer, which is one JSON text.
func (h overHTTP) post(ctx context.Context, path string, body map[string]any) (page, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return page{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path,
		strings.NewReader(string(text)))
	if err != nil {
		return page{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return page{}, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return page{}, broken(resp, err)
	}
	return parse(resp, all)
}

// broken returns the error of a body that is not whole.
func broken(resp *http.Response, err error) error {
	if resp.StatusCode == http.StatusOK {
		return fmt.Errorf("%w: %w", errCut, err)
	}
	return err
}

// parse reads the answers of REST and of the Data API, and those of haproxy, which are not JSON.
func parse(resp *http.Response, text []byte) (page, error) {
	documents, text := split(text)
	var a struct {
		Cursor    string
		Error     json.RawMessage
		ErrorCode string `json:"error_code"`
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return page{}, broken(resp, fmt.Errorf("%d with no JSON: %.60q", resp.StatusCode, text))
	}
	if resp.StatusCode == http.StatusOK {
		return page{documents, a.Cursor}, nil
	}
	var e struct{ Reason, Retry string }
	if err := json.Unmarshal(a.Error, &e); err != nil { // of the Data API, a text
		e.Reason, e.Retry = a.ErrorCode, "never"
		if resp.Header.Get("Retry-After") != "" {
			e.Retry = "same-request"
		}
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return page{}, &failure{
		resp.StatusCode, e.Reason, e.Retry, time.Duration(seconds) * time.Second,
	}
}

// split cuts the list of documents, of which no text has a bracket, out of an answer. It is many
// times faster than a parser of JSON, which takes more time than the gateway, above all with
// -race.
func split(answer []byte) (documents [][]byte, rest []byte) {
	const begin, next = `{"documents":[`, `,{"_id":`
	list, is := bytes.CutPrefix(answer, []byte(begin))
	list, rest, whole := bytes.Cut(list, []byte("]"))
	if !is || !whole {
		return nil, answer
	}
	for len(list) > 0 {
		end := bytes.Index(list, []byte(next))
		if end < 0 {
			documents, list = append(documents, list), nil
			break
		}
		documents, list = append(documents, list[:end]), list[end+1:]
	}
	return documents, append([]byte(begin+"]"), rest...)
}

func (h overHTTP) want(c *collection, i int) []byte { return c.json[i] }

type overREST struct{ overHTTP }

func (r overREST) first(ctx context.Context, c *collection) (page, error) {
	return r.post(ctx, gatewaytest.Documents(database, c.name, "find"), map[string]any{})
}

func (r overREST) next(ctx context.Context, token string) (page, error) {
	return r.post(ctx, "/v1/cursors:next", map[string]any{"cursor": token})
}

// overDataAPI gets whole results.
type overDataAPI struct{ overHTTP }

func (d overDataAPI) first(ctx context.Context, c *collection) (page, error) {
	return d.post(ctx, "/app/data-abcde/endpoint/data/v1/action/find", map[string]any{
		"dataSource": dataSource, "database": database, "collection": c.name, "limit": 50_000,
	})
}

func (d overDataAPI) next(context.Context, string) (page, error) {
	return page{}, errors.New("the Data API has no pages")
}

// overGRPC calls a replica, by chance.
type overGRPC struct{ replicas *gatewaytest.Replicas }

func (g overGRPC) first(ctx context.Context, c *collection) (page, error) {
	resp, err := mooringv1.NewDocumentServiceClient(g.replicas.Any().Conn).Find(ctx,
		&mooringv1.FindRequest{Database: database, Collection: c.name}, largest)
	return pageOf(resp, err)
}

func (g overGRPC) next(ctx context.Context, token string) (page, error) {
	resp, err := mooringv1.NewCursorServiceClient(g.replicas.Any().Conn).NextPage(ctx,
		&mooringv1.NextPageRequest{Cursor: token}, largest)
	return pageOf(resp, err)
}

// largest lets a client take a page of one document, however large.
var largest = grpc.MaxCallRecvMsgSize(17 << 20)

func (g overGRPC) want(c *collection, i int) []byte { return c.bson[i] }

func pageOf(resp interface {
	GetDocuments() []*mooringv1.Document
	GetCursor() string
}, err error,
) (page, error) {
	if err != nil {
		return page{}, failureOf(err)
	}
	p := page{token: resp.GetCursor()}
	for _, doc := range resp.GetDocuments() {
		p.documents = append(p.documents, doc.GetBson())
	}
	return p, nil
}

// failureOf returns the failure that a gateway answered with, or the error of gRPC itself.
func failureOf(err error) error {
	st := status.Convert(err)
	f := &failure{status: map[codes.Code]int{
		codes.Aborted: http.StatusConflict, codes.ResourceExhausted: http.StatusTooManyRequests,
		codes.Unavailable: http.StatusServiceUnavailable,
	}[st.Code()]}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			f.reason, f.retry = d.GetReason(), d.GetMetadata()["retry"]
			if s, err := strconv.Atoi(d.GetMetadata()["httpStatus"]); err == nil {
				f.status = s
			}
		case *errdetails.RetryInfo:
			f.after = d.GetRetryDelay().AsDuration()
		}
	}
	if f.reason == "" {
		return fmt.Errorf("no answer of a gateway: %s", cmp.Or(st.Code().String(), st.Message()))
	}
	return f
}
