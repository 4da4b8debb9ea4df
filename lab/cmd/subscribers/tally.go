package main

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// tally has what the streams of one connection have had.
type tally struct {
	events  int // that each stream gets
	streams []events
	took    []time.Duration
	// open and done count streams.
	open, done int
}

// events has how far one stream is.
type events struct {
	open bool
	next int
	// rest is the part of an event whose end has not come.
	rest []byte
}

func newTally(streams, each int) tally {
	return tally{
		events: each, streams: make([]events, streams),
		took: make([]time.Duration, 0, streams*each),
	}
}

func (t *tally) isOpen() bool { return t.open == len(t.streams) }
func (t *tally) isDone() bool { return t.done == len(t.streams) }

var end2 = []byte("\n\n")

// add reads what a stream has got. The bytes are the caller's again afterwards.
func (t *tally) add(stream int, b []byte) error {
	s := &t.streams[stream]
	if len(s.rest) > 0 {
		s.rest = append(s.rest, b...)
		b = s.rest
	}
	for {
		block, rest, whole := bytes.Cut(b, end2)
		if !whole {
			break
		}
		if err := t.block(s, block); err != nil {
			return err
		}
		b = rest
	}
	s.rest = append(s.rest[:0], b...)
	if len(s.rest) == 0 {
		s.rest = nil
	}
	return nil
}

// block reads an event, or the comment that keeps the connection.
func (t *tally) block(s *events, block []byte) error {
	_, data, found := bytes.Cut(block, []byte("data: "))
	found = found && !bytes.Contains(block, []byte("event: progress\n"))
	switch {
	case !found && !s.open:
		if !bytes.HasPrefix(block, []byte(": shared\nid: ")) {
			return fmt.Errorf("a stream begins with %q", block)
		}
		s.open = true
		t.open++
		return nil
	case !found:
		return nil
	}
	id, data, _ := after(data, `"fullDocument":{"_id":`)
	at, _, ok := after(data, `"at":`)
	if !ok || id != int64(s.next) {
		return fmt.Errorf("a stream has %q, want the event of %d", block, s.next)
	}
	t.took = append(t.took, time.Since(time.UnixMicro(at)))
	if s.next++; s.next == t.events {
		t.done++
	}
	return nil
}

// after returns the number behind a text, and what follows it.
func after(b []byte, text string) (n int64, rest []byte, ok bool) {
	_, b, ok = bytes.Cut(b, []byte(text))
	end := bytes.IndexAny(b, ",}")
	if !ok || end < 0 {
		return 0, nil, false
	}
	n, err := strconv.ParseInt(string(b[:end]), 10, 64)
	return n, b[end:], err == nil
}
