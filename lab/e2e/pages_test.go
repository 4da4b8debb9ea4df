package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// numbers is one page: the _ids of its documents, and the token of the next page.
type numbers struct {
	ids    []int32
	cursor string
}

// refusal is an error that a gateway answered with.
type refusal struct {
	HTTP                    int // 0 on gRPC
	Status, Reason, Message string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s %s (%d): %s", r.Status, r.Reason, r.HTTP, r.Message)
}

// reasonOf returns the reason of a refusal, or the text of another error.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.Reason
	}
	return err.Error()
}

// pager reads pages, over REST or gRPC. Every refusal is a *refusal.
type pager interface {
	find(ctx context.Context, collection string, batch int32) (numbers, error)
	next(ctx context.Context, cursor string) (numbers, error)
}

// overREST reads pages from the gateway at base, http://host:port. header is in every request.
type overREST struct {
	base   string
	header http.Header
}

func (r overREST) find(ctx context.Context, collection string, batch int32) (numbers, error) {
	return r.post(ctx, gatewaytest.Documents("lab", collection, "find"),
		map[string]any{"batchSize": batch})
}

func (r overREST) next(ctx context.Context, cursor string) (numbers, error) {
	return r.post(ctx, "/v1/cursors:next", map[string]any{"cursor": cursor})
}

// rest reads what is left of a cursor as NDJSON.
func (r overREST) rest(ctx context.Context, cursor string, s *sequence) error {
	return readNDJSON(ctx, r.base+"/v1/cursors:stream", fmt.Sprintf(`{"cursor": %q}`, cursor), s,
		func() {})
}

func (r overREST) post(ctx context.Context, path string, body any) (numbers, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return numbers{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+path, bytes.NewReader(text))
	if err != nil {
		return numbers{}, err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return numbers{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return numbers{}, err
	}
	return parseNumbers(resp.StatusCode, answer)
}

func parseNumbers(code int, answer []byte) (numbers, error) {
	var a struct {
		Documents []struct {
			ID int32 `json:"_id"`
		}
		Cursor string
		Error  *refusal
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return numbers{}, fmt.Errorf("%d %.200s: %w", code, answer, err)
	}
	if a.Error != nil {
		a.Error.HTTP = code
		return numbers{}, a.Error
	}
	n := numbers{cursor: a.Cursor}
	for _, d := range a.Documents {
		n.ids = append(n.ids, d.ID)
	}
	return n, nil
}

// overGRPC reads pages from a gateway over gRPC.
type overGRPC struct {
	documents mooringv1.DocumentServiceClient
	cursors   mooringv1.CursorServiceClient
}

func newGRPC(t testing.TB, g *gatewaytest.Gateway) overGRPC {
	c := g.Dial(t)
	return overGRPC{mooringv1.NewDocumentServiceClient(c), mooringv1.NewCursorServiceClient(c)}
}

func (g overGRPC) find(ctx context.Context, collection string, batch int32) (numbers, error) {
	got, err := g.documents.Find(ctx,
		&mooringv1.FindRequest{Database: "lab", Collection: collection, BatchSize: &batch})
	return numbers{ids(got.GetDocuments()), got.GetCursor()}, asRefusal(err)
}

func (g overGRPC) next(ctx context.Context, cursor string) (numbers, error) {
	got, err := g.cursors.NextPage(ctx, &mooringv1.NextPageRequest{Cursor: cursor})
	return numbers{ids(got.GetDocuments()), got.GetCursor()}, asRefusal(err)
}

// rest reads what is left of a cursor as a stream.
func (g overGRPC) rest(ctx context.Context, cursor string, s *sequence) error {
	stream, err := g.cursors.Stream(ctx, &mooringv1.CursorServiceStreamRequest{Cursor: cursor})
	if err != nil {
		return asRefusal(err)
	}
	return readMessages(stream, s, func() {})
}

// asRefusal is a gRPC status as REST tells it.
func asRefusal(err error) error {
	if err == nil {
		return nil
	}
	s, _ := status.FromError(err)
	r := &refusal{Status: s.Code().String(), Message: s.Message()}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			r.Reason = info.GetReason()
		}
	}
	return r
}

// follows says what is wrong with a page that should hold the documents from first on: as many as
// there are, and all of them if it is the last, which has no token.
func (n numbers) follows(first, end int32) error {
	for i, id := range n.ids {
		if id != first+int32(i) {
			return fmt.Errorf("documents %v where those from %d on should be", n.ids, first)
		}
	}
	if got := first + int32(len(n.ids)); n.cursor == "" && got != end {
		return fmt.Errorf("the last page ends at %d of %d", got, end)
	}
	return nil
}

// readOn reads the rest of a cursor whose last page was p, from the pagers in turn, and counts
// the pages.
func readOn(ctx context.Context, p numbers, at, end int32, from ...pager) (pages int, err error) {
	for i := 0; ; i++ {
		if err := p.follows(at, end); err != nil {
			return i, err
		}
		at += int32(len(p.ids))
		if p.cursor == "" {
			return i, nil
		}
		if p, err = from[i%len(from)].next(ctx, p.cursor); err != nil {
			return i, fmt.Errorf("after %d of %d documents: %w", at, end, err)
		}
	}
}

// reads reads a whole collection in pages from the pagers in turn.
func reads(
	ctx context.Context, collection string, batch, first, end int32, from ...pager,
) (pages int, err error) {
	p, err := from[0].find(ctx, collection, batch)
	if err != nil {
		return 0, err
	}
	pages, err = readOn(ctx, p, first, end, append(slices.Clone(from[1:]), from[0])...)
	return pages + 1, err
}
