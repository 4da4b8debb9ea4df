// Package driverbench measures core/client beside the official driver, without a gateway: findOne
// with several numbers of callers, and a cursor over many documents. Both drivers are in this
// process, take turns, have the same options, and return documents as BSON bytes. The server is
// another process, with canned replies.
package driverbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
)

const (
	database  = "shop"
	documents = 10_000 // of the cursor
	size      = 1024   // of a document
	batchSize = 1000
	// connections is the size of both pools, so that no caller waits for a connection.
	connections = 64
)

// collection holds the cursor's documents.
var collection = fmt.Sprintf("docs_%d_%d", documents, size)

// errMissing is returned if a driver does not return what the server has.
var errMissing = errors.New("the result is not what the server has")

// driver represents a client of the server, in the terms of the measurements.
type driver interface {
	// findOne reads the document with this _id.
	findOne(ctx context.Context, id int32) ([]byte, error)
	// read passes each document of the collection to use.
	read(ctx context.Context, use func(doc []byte)) error
	close(ctx context.Context) error
}

// contender names a driver.
type contender struct {
	name   string
	driver driver
}

// scenario describes one way to use a driver.
type scenario struct {
	name    string
	callers int
	// unit is what units counts in one call of work.
	unit  string
	units int
	work  func(context.Context, driver) error
	// heap is how much else is live in the process. It decides how often the collector runs, which
	// otherwise costs more than the cursor: every 4 MB, so after four batches.
	heap int
}

// serviceHeap is the live memory of a small service.
const serviceHeap = 64 << 20

var scenarios = []scenario{
	{"find-one-1", 1, "operation", 1, findOne, 0},
	{"find-one-16", 16, "operation", 1, findOne, 0},
	{"find-one-64", 64, "operation", 1, findOne, 0},
	{"cursor", 1, "document", documents, readAll, 0},
	{"cursor-64MB", 1, "document", documents, readAll, serviceHeap},
}

// Run measures the drivers on the server at the URI and prints the table, then the ratios: our
// rate divided by theirs, so that more is better, and our processor time and allocations divided
// by theirs, so that less is better.
func Run(ctx context.Context, w io.Writer, uri string, rounds int) (err error) {
	ours, err := openOurs(ctx, uri)
	if err != nil {
		return fmt.Errorf("core/client: %w", err)
	}
	defer func() { err = errors.Join(err, ours.close(ctx)) }()
	official, err := openOfficial(uri)
	if err != nil {
		return fmt.Errorf("official driver: %w", err)
	}
	defer func() { err = errors.Join(err, official.close(ctx)) }()
	contenders := []contender{{"core/client", ours}, {"official driver", official}}

	fmt.Fprintf(w,
		"Drivers, sessions and retries on, a context with a deadline; documents of %d bytes, the "+
			"cursor over %d of them in batches of %d, also with 64 MB of other live memory; "+
			"medians of %d pairs of turns; %s, %d processors\n\n",
		size, documents, batchSize, rounds, runtime.Version(), runtime.NumCPU())
	fmt.Fprintf(w, "%-13s %-17s %-10s %9s %21s %11s %13s\n", "case", "driver", "unit", "units/s",
		"(least … most)", "CPU µs/unit", "allocs/unit")
	var ratios []string
	for _, s := range scenarios {
		costs, err := s.measure(ctx, contenders, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for i, c := range costs {
			fmt.Fprintf(w, "%-13s %-17s %-10s %9.0f %21s %11.2f %13.2f\n", s.name,
				contenders[i].name, s.unit, c.rate.median(),
				fmt.Sprintf("(%.0f … %.0f)", c.rate.least(), c.rate.most()), c.cpu.median(),
				c.allocations.median())
		}
		ratios = append(ratios, s.ratios(costs[0], costs[1])...)
	}
	fmt.Fprintln(w)
	for _, line := range ratios {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	return nil
}

// ratios returns the lines for programs. Each is the median of the ratios of the pairs of turns,
// whose two halves follow one another, so that another load of the machine meets both.
func (s scenario) ratios(ours, theirs cost) []string {
	return []string{
		fmt.Sprintf("ratio driver-%s-rate %.2f", s.name, ours.rate.over(theirs.rate).median()),
		fmt.Sprintf("ratio driver-%s-cpu %.3f", s.name, ours.cpu.over(theirs.cpu).median()),
		fmt.Sprintf("ratio driver-%s-allocs %.3f", s.name,
			ours.allocations.over(theirs.allocations).median()),
	}
}

// findOne reads one document and checks its size.
func findOne(ctx context.Context, d driver) error {
	doc, err := d.findOne(ctx, 42)
	if err == nil && len(doc) != size {
		return errMissing
	}
	return err
}

// readAll reads the collection and checks the sizes of its documents.
func readAll(ctx context.Context, d driver) error {
	n, bytes := 0, 0
	err := d.read(ctx, func(doc []byte) {
		n++
		bytes += len(doc)
	})
	if err == nil && (n != documents || bytes != documents*size) {
		return errMissing
	}
	return err
}
