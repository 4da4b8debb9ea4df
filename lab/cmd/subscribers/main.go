// Command subscribers opens many change streams of one collection, as Server-Sent Events, and
// measures how long events take to reach them. It is a process of its own, so that what the clients
// cost is told apart from what the gateway costs, and uses as little as it can.
//
// The documents of the events have an _id, which counts from 0 without a gap, and the time when
// they were written, in microseconds, as "at". The command prints "open" when all streams are, and
// a line of JSON, a Report, when each has had so many events. A stream that gets other events than
// the next one, or that ends, ends the command with an error.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mooringdb/mooring/lab/internal/proc"
)

// options says what to open.
type options struct {
	address, path, authority string
	connections, streams     int
	events                   int
	timeout                  time.Duration

	secure *tls.Config
}

func main() {
	var o options
	flag.StringVar(&o.address, "address", "", "`host:port` of the gateway's REST API, over TLS")
	flag.StringVar(&o.path, "path", "", "`path` of the stream")
	flag.StringVar(&o.authority, "ca", "", "`path` of the authority of its certificate, PEM")
	flag.IntVar(&o.connections, "connections", 1, "`number` of connections")
	flag.IntVar(&o.streams, "streams", 0,
		"`number` of streams on each connection, over HTTP/2; 0: one, over HTTP/1.1")
	flag.IntVar(&o.events, "events", 1, "`number` of events that each stream gets")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "`time` after which the command gives up")
	flag.Parse()
	time.AfterFunc(o.timeout, func() {
		end(errors.New("the streams have not had all events in time"))
	})
	if err := o.run(); err != nil {
		end(err)
	}
}

func end(err error) {
	fmt.Fprintln(os.Stderr, "subscribers:", err)
	os.Exit(1)
}

// connection represents one connection with all its streams. Its tally is complete when read has
// returned.
type connection interface {
	// open returns when all streams are open.
	open() error
	// read returns when all streams have had all events.
	read() error
	tally() *tally
}

func (o *options) run() error {
	authority, err := os.ReadFile(o.authority)
	if err != nil {
		return err
	}
	o.secure = &tls.Config{RootCAs: x509.NewCertPool(), NextProtos: []string{"http/1.1"}}
	o.secure.RootCAs.AppendCertsFromPEM(authority)
	if o.streams > 0 {
		o.secure.NextProtos = []string{"h2"}
	}
	all := make([]connection, o.connections)
	var opening, reading errgroup.Group
	opening.SetLimit(16)
	for i := range all {
		if o.streams > 0 {
			all[i] = newMultiplexed(o)
		} else {
			all[i] = newSingle(o)
		}
		opening.Go(all[i].open)
	}
	if err := opening.Wait(); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "open")
	before, err := proc.CPU(os.Getpid())
	if err != nil {
		return err
	}
	for _, c := range all {
		reading.Go(c.read)
	}
	if err := reading.Wait(); err != nil {
		return err
	}
	after, err := proc.CPU(os.Getpid())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report(all, after-before))
}

// Report says how long events took from before they were written until they were read, and how much
// processor time this process has used to read them.
type Report struct {
	Events             int
	P50, P99, Max, CPU time.Duration
}

func report(all []connection, used time.Duration) Report {
	var took []time.Duration
	for _, c := range all {
		took = append(took, c.tally().took...)
	}
	slices.Sort(took)
	at := func(share float64) time.Duration { return took[int(share*float64(len(took)-1))] }
	return Report{Events: len(took), P50: at(0.5), P99: at(0.99), Max: at(1), CPU: used}
}
