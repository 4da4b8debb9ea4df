package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// URL returns what the requests over REST are posted to.
func (j Job) URL() string {
	return fmt.Sprintf("%s/v1/databases/%s/collections/%s/documents:%s", j.REST, Database,
		j.Collection, strings.ToLower(string(j.Operation[:1]))+string(j.Operation[1:]))
}

// Body returns the body of the requests over REST.
func (j Job) Body() []byte {
	document := json.RawMessage(
		`{"sku": "A-4711", "quantity": 3, "price": 12.5, "tags": ["a", "b"]}`)
	filter := json.RawMessage(`{"total": {"$gt": 42}}`)
	var body map[string]any
	switch j.Operation {
	case FindOne:
		body = map[string]any{"filter": filter}
	case Find:
		body = map[string]any{"filter": filter, "limit": j.Documents, "batchSize": j.Documents}
	case StreamFind:
		body = map[string]any{"filter": filter, "limit": j.Documents}
	case InsertOne:
		body = map[string]any{"document": document}
	case InsertMany:
		documents := make([]json.RawMessage, j.Documents)
		for i := range documents {
			documents[i] = document
		}
		body = map[string]any{"documents": documents}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("bug: %v", err))
	}
	return text
}

// Post returns one request over REST.
func (j Job) Post(ctx context.Context) (*http.Request, error) {
	return post(ctx, j.URL(), j.Key, j.Body())
}

func post(ctx context.Context, url, key string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return req, nil
}

// rest returns the call over REST, with a connection for each caller.
func (j Job) rest() (call, func()) {
	t := &http.Transport{
		MaxIdleConns: j.Callers, MaxIdleConnsPerHost: j.Callers, DisableCompression: true,
	}
	c := &http.Client{Transport: t}
	url, body := j.URL(), j.Body()
	return func(ctx context.Context) (answer, error) {
		start := time.Now()
		req, err := post(ctx, url, j.Key, body)
		if err != nil {
			return answer{}, err
		}
		resp, err := c.Do(req)
		if err != nil {
			return answer{}, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return answer{}, fmt.Errorf("%s: %s", url, resp.Status)
		}
		if j.Operation != StreamFind {
			n, err := io.Copy(io.Discard, resp.Body)
			return answer{bytes: int(n)}, err
		}
		return readLines(resp.Body, start)
	}, t.CloseIdleConnections
}

// readLines counts the lines of a stream.
func readLines(r io.Reader, start time.Time) (a answer, err error) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if lines := bytes.Count(buf[:n], []byte{'\n'}); lines > 0 {
			if a.documents == 0 {
				a.first = time.Since(start)
			}
			a.documents += lines
		}
		a.bytes += n
		if err == io.EOF {
			return a, nil
		}
		if err != nil {
			return a, err
		}
	}
}
