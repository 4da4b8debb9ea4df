package main

import (
	"fmt"
	"slices"

	"github.com/mooringdb/mooring/lab/internal/load"
)

// mainCallers is how many callers the cases have whose names do not tell it.
const mainCallers = 16

// allCallers are the numbers of callers of a full run.
var allCallers = []int{1, mainCallers, 256}

// callersSuffix returns the end of the name of a case.
func callersSuffix(callers int) string {
	if callers == mainCallers {
		return ""
	}
	return fmt.Sprintf("-callers-%d", callers)
}

const (
	small = "orders_100000" // documents of about 500 bytes
	mixed = "mixed_100000"  // of about 1 KB, with 60 fields
)

// streamed is how many documents the streams of all callers have, and streamPage those of one of
// the floor's pages: a megabyte.
const (
	streamed   = 100_000
	streamPage = 2_000
)

// scenario holds one request, and the sides that answer it.
type scenario struct {
	name string
	rest bool
	job  load.Job // without its target
	// sides are those that take turns. The ratios are of the first to each of the others.
	sides []subject
	// added says that the first side does more than the others: what it adds is printed, too.
	added bool
}

// to returns the job for one side.
func (s scenario) to(side subject) load.Job {
	job := s.job
	if s.rest {
		job.REST = side.rest
	} else {
		job.GRPC = side.grpc
	}
	return job
}

// scenarios returns the cases that are measured.
func (b *bench) scenarios() []scenario {
	all := slices.Concat(b.mainCases(), b.guardedCases(), b.tracedCases(), b.auditedCases())
	if b.sweeps {
		all = append(all, b.sweepCases()...)
	}
	return slices.DeleteFunc(all, func(s scenario) bool {
		return b.only != nil && !b.only.MatchString(s.name)
	})
}

// both returns a case over REST and one over gRPC.
func both(name string, job load.Job, sides ...subject) []scenario {
	return []scenario{
		{name: "rest-" + name, rest: true, job: job, sides: sides},
		{name: "grpc-" + name, job: job, sides: sides},
	}
}

// contenders returns what the gateway is compared with: another build, if there is one.
func (b *bench) contenders() []subject {
	if b.old.name != "" {
		return []subject{b.ours, b.old}
	}
	return []subject{b.ours, b.floor, b.thin}
}

// request holds a request that the main table shows.
type request struct {
	name string
	job  load.Job
	text string // what the page calls it
}

var requests = []request{
	{"find-one", findOne, "findOne, 512 bytes"},
	{
		"find-one-mixed",
		load.Job{Operation: load.FindOne, Collection: mixed},
		"findOne, 1 KB of 60 fields",
	},
	{"find-100", find100, "find of 100, 1 KB of 60 fields each"},
	{
		"find-1000",
		load.Job{Operation: load.Find, Collection: mixed, Documents: 1000},
		"find of 1,000",
	},
	{"insert-one", insertOne, "insertOne"},
	{
		"insert-100",
		load.Job{Operation: load.InsertMany, Collection: small, Documents: 100},
		"insertMany of 100",
	},
	{
		"stream",
		load.Job{Operation: load.StreamFind, Collection: small, Documents: streamed},
		"stream of 100,000, 512 bytes each",
	},
}

var (
	findOne   = load.Job{Operation: load.FindOne, Collection: small}
	find100   = load.Job{Operation: load.Find, Collection: mixed, Documents: 100}
	insertOne = load.Job{Operation: load.InsertOne, Collection: small}
)

// mainCases returns what the main table shows.
func (b *bench) mainCases() (all []scenario) {
	for _, callers := range b.callers {
		for _, c := range requests {
			c.job.Callers = callers
			if c.job.Operation == load.StreamFind {
				c.job.Documents /= callers // what the slowest side sends in a turn is bounded
			}
			all = append(all, both(c.name+callersSuffix(callers), c.job, b.contenders()...)...)
		}
	}
	return all
}

// added returns the cases of a gateway that does more than ours, beside ours.
func (b *bench) added(name string, side subject, job load.Job) []scenario {
	job.Callers = mainCallers
	all := both(name, job, side, b.ours)
	for i := range all {
		all[i].added = true
	}
	return all
}

// sweep holds the cases of one plot: the same request with a growing number.
type sweep struct {
	name   string
	axis   string
	values []int
	job    func(n int) load.Job
}

var sweeps = []sweep{
	{
		"documents", "documents of 100 bytes in a page",
		[]int{1, 3, 10, 30, 100, 300, 1000, 3000, 10000},
		func(n int) load.Job {
			return load.Job{
				Operation: load.Find, Collection: "docs_100000_100", Documents: n,
				Callers: mainCallers,
			}
		},
	},
	{
		"size", "bytes of a document",
		[]int{100, 1000, 10_000, 100_000, 1_000_000, 16_000_000},
		func(n int) load.Job {
			return load.Job{
				Operation: load.FindOne, Collection: fmt.Sprintf("docs_1_%d", n),
				Callers: mainCallers,
			}
		},
	},
	{
		"clients", "clients",
		[]int{1, 4, 16, 64, 256, 1000, 4000},
		func(n int) load.Job {
			return load.Job{Operation: load.FindOne, Collection: small, Callers: n}
		},
	},
}

func (s sweep) caseName(n int) string { return fmt.Sprintf("%s-%d", s.name, n) }

// sweepCases returns what the plots show.
func (b *bench) sweepCases() (all []scenario) {
	for _, s := range sweeps {
		for _, n := range s.values {
			all = append(all, both(s.caseName(n), s.job(n), b.contenders()...)...)
		}
	}
	return all
}
