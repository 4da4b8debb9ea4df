// Package load keeps a gateway busy with the same request from a number of callers, each of which
// sends the next one when it has the answer to the last. It checks that every answer is a good
// one, and measures nothing but the time.
package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Job says what to send, and how often. It travels between processes as JSON.
type Job struct {
	URL        string `json:",omitempty"` // a POST to this URL ...
	Body       string `json:",omitempty"`
	GRPC       string `json:",omitempty"` // ... or a call to this address
	Collection string `json:",omitempty"` // in the database bench
	ID         int32  `json:",omitempty"` // of findOne's filter
	Limit      int64  `json:",omitempty"` // of a find; 0 is a findOne
	Key        string `json:",omitempty"` // the API key, as a bearer's token
	Requests   int
	Callers    int
}

// Result holds the outcome of a Job.
type Result struct {
	Elapsed time.Duration
	Bytes   int64 // of all documents or bodies that came back
}

// call sends one request and gives the size of the answer.
type call func(context.Context) (int, error)

// Run does the job. The first failure ends it.
func Run(ctx context.Context, j Job) (Result, error) {
	one, stop, err := j.call()
	if err != nil {
		return Result{}, err
	}
	defer stop()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left, total atomic.Int64
	left.Store(int64(j.Requests))
	var wg sync.WaitGroup
	start := time.Now()
	for range j.Callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				n, err := one(ctx)
				if err != nil {
					cancel(err)
					return
				}
				total.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}
	return Result{Elapsed: time.Since(start), Bytes: total.Load()}, nil
}

func (j Job) call() (_ call, stop func(), _ error) {
	if j.GRPC == "" {
		t := &http.Transport{MaxIdleConnsPerHost: j.Callers, DisableCompression: true}
		return j.post(&http.Client{Transport: t}), t.CloseIdleConnections, nil
	}
	conn, err := grpc.NewClient(j.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	documents := keyed{mooringv1.NewDocumentServiceClient(conn), j.Key}
	if j.Limit > 0 {
		return j.find(documents), func() { _ = conn.Close() }, nil
	}
	return j.findOne(documents), func() { _ = conn.Close() }, nil
}

func (j Job) post(c *http.Client) call {
	return func(ctx context.Context) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.URL,
			bytes.NewReader([]byte(j.Body)))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Content-Type", "application/json")
		if j.Key != "" {
			req.Header.Set("Authorization", "Bearer "+j.Key)
		}
		resp, err := c.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		n, err := io.Copy(io.Discard, resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", j.URL, resp.Status)
		}
		return int(n), err
	}
}

func (j Job) findOne(c mooringv1.DocumentServiceClient) call {
	req := &mooringv1.FindOneRequest{
		Database: Database, Collection: j.Collection, Filter: filter(j.ID),
	}
	return func(ctx context.Context) (int, error) {
		resp, err := c.FindOne(ctx, req)
		if err != nil {
			return 0, err
		}
		if len(resp.GetDocument().GetBson()) == 0 {
			return 0, fmt.Errorf("findOne of %s: no document", j.Collection)
		}
		return len(resp.GetDocument().GetBson()), nil
	}
}

func (j Job) find(c mooringv1.DocumentServiceClient) call {
	req := &mooringv1.FindRequest{
		Database: Database, Collection: j.Collection, Filter: filter(j.ID), Limit: &j.Limit,
	}
	return func(ctx context.Context) (int, error) {
		resp, err := c.Find(ctx, req)
		if err != nil {
			return 0, err
		}
		if int64(len(resp.GetDocuments())) != j.Limit {
			return 0, fmt.Errorf("find of %s: %d documents, want %d", j.Collection,
				len(resp.GetDocuments()), j.Limit)
		}
		n := 0
		for _, d := range resp.GetDocuments() {
			n += len(d.GetBson())
		}
		return n, nil
	}
}
