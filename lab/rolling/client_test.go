package rolling_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// client reads the collection again and again, and does what the `retry` of errors says.
type client struct {
	*world
}

// failure is an error of the gateway, or the lack of an answer.
type failure struct {
	Reason string `json:"reason"`
	Retry  string `json:"retry"`
}

func (f *failure) Error() string { return f.Reason }

type row struct {
	ID int `json:"_id"`
}

type page struct {
	Documents []row
	Cursor    string
	Error     *failure
}

// tries bounds how often a call is repeated.
const tries = 50

// readPages reads results in pages until ctx ends. The result that is then open is read no further.
func (c *client) readPages(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.readResult(ctx); err != nil {
			c.lose(err)
		}
	}
}

// readResult reads one result. If the gateway says restart, it reads it from its beginning.
func (c *client) readResult(ctx context.Context) error {
	for range tries {
		err := c.readOnce(ctx)
		if f, ok := errors.AsType[*failure](err); !ok || f.Retry != "restart" {
			return err
		}
	}
	return errors.New("restarted too often")
}

func (c *client) readOnce(ctx context.Context) error {
	path, body := "/v1/databases/db/collections/c/documents:find",
		map[string]any{"batchSize": batchSize}
	want := 0
	for {
		p, err := c.call(path, body)
		if err != nil {
			return err
		}
		for _, doc := range p.Documents {
			if doc.ID != want {
				return fmt.Errorf("document %d came where %d was due", doc.ID, want)
			}
			want++
		}
		if p.Cursor == "" {
			if want != documents {
				return fmt.Errorf("a result ended after %d documents", want)
			}
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		pause(time.Duration(50+rand.IntN(200)) * time.Millisecond)
		path, body = "/v1/cursors:next", map[string]any{"cursor": p.Cursor, "batchSize": batchSize}
	}
}

// call makes a call, and repeats it while the answer is lost or says so.
func (c *client) call(path string, body map[string]any) (page, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return page{}, err
	}
	for try := range tries {
		p, err := c.post(path, text)
		if err == nil {
			c.mu.Lock()
			c.pages++
			c.mu.Unlock()
			return p, nil
		}
		c.fail(err, try == 0)
		if f, ok := errors.AsType[*failure](err); ok && f.Retry != "same-request" {
			return page{}, err
		}
		pause(50 * time.Millisecond)
	}
	return page{}, errors.New("repeated too often")
}

func (c *client) post(path string, text []byte) (page, error) {
	resp, err := c.http.Post(c.url+path, "application/json", bytes.NewReader(text))
	if err != nil {
		return page{}, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return page{}, err
	}
	var p page
	if err := json.Unmarshal(all, &p); err != nil {
		return page{}, noJSON(resp.StatusCode, all)
	}
	if p.Error != nil {
		return page{}, p.Error
	}
	return p, nil
}

// noJSON is the error of an answer that is not JSON. haproxy answers so where it has no gateway,
// but never with status 200: such an answer is garbled, and is not repeated.
func noJSON(status int, text []byte) error {
	if status == http.StatusOK {
		return &failure{
			Reason: fmt.Sprintf("no JSON with status 200: %.100q", text), Retry: "never",
		}
	}
	return fmt.Errorf("no answer of a gateway: %d of haproxy", status)
}

// readStreams reads the collection as streams until ctx ends. A stream that broke is read from its
// beginning, as the retry of a find says; its result is lost if no stream is complete.
func (c *client) readStreams(ctx context.Context) {
	for ctx.Err() == nil {
		err := errors.New("restarted too often")
		for try := range tries {
			if err = c.readStream(); err == nil {
				break
			}
			c.fail(err, try == 0)
			if f, ok := errors.AsType[*failure](err); ok && f.Retry != "same-request" &&
				f.Retry != "restart" {
				break
			}
			pause(50 * time.Millisecond)
		}
		if err != nil {
			c.lose(err)
		}
	}
}

// readStream reads one stream, slowly. It must have all documents, in order.
func (c *client) readStream() error {
	req, err := http.NewRequest(http.MethodPost,
		c.url+"/v1/databases/db/collections/c/documents:streamFind",
		bytes.NewReader([]byte(`{"batchSize":100}`)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	want := 0
	for lines := bufio.NewReader(resp.Body); ; {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("a stream broke: %w", err)
		}
		var line struct {
			Document *row
			Error    *failure
			End      *struct{}
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return noJSON(resp.StatusCode, text)
		}
		switch {
		case line.Error != nil:
			return line.Error
		case line.End != nil:
			if want != documents {
				c.t.Errorf("a stream ended after %d documents", want)
			}
			c.mu.Lock()
			c.streams++
			c.mu.Unlock()
			return nil
		case line.Document == nil || line.Document.ID != want:
			c.t.Errorf("the line %s came where document %d was due", text, want)
			return nil
		}
		if want++; want%100 == 0 {
			pause(100 * time.Millisecond)
		}
	}
}

// fail counts a try that failed.
func (c *client) fail(err error, first bool) {
	if !first {
		return
	}
	reason := short(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed[reason]++
}

func (c *client) lose(err error) {
	c.mu.Lock()
	c.lost++
	c.mu.Unlock()
	c.t.Errorf("a result was lost: %v", err)
}
