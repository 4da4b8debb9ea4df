package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
)

// pieceBytes is how much of a stream is read at a time.
const pieceBytes = 2 << 10

// single represents a connection with one stream, over HTTP/1.1.
type single struct {
	o      *options
	counts tally
	conn   *tls.Conn
	body   io.Reader
	piece  []byte
}

func newSingle(o *options) *single {
	return &single{o: o, counts: newTally(1, o.events), piece: make([]byte, pieceBytes)}
}

func (c *single) tally() *tally { return &c.counts }

func (c *single) open() (err error) {
	if c.conn, err = tls.Dial("tcp", c.o.address, c.o.secure); err != nil {
		return err
	}
	const request = "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n"
	if _, err := fmt.Fprintf(c.conn, request, c.o.path, c.o.address); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c.conn, pieceBytes), nil)
	if err != nil {
		return err
	}
	if c.body = resp.Body; resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, why)
	}
	return c.until(c.counts.isOpen)
}

func (c *single) read() error {
	defer func() { _ = c.conn.Close() }()
	return c.until(c.counts.isDone)
}

func (c *single) until(done func() bool) error {
	for !done() {
		n, err := c.body.Read(c.piece)
		if err != nil {
			return fmt.Errorf("a stream over HTTP/1.1 has ended: %w", err)
		}
		if err := c.counts.add(0, c.piece[:n]); err != nil {
			return err
		}
	}
	return nil
}
