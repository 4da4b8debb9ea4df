package main

import (
	"fmt"
	"io"

	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// grpcurl is pinned: the newest one may not be served by every module proxy. With -v, Go lists what
// it compiles, and nothing once that is done.
const grpcurl = "go run -v github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4 -plaintext"

// line holds one command to try.
type line struct{ what, command string }

// printLines prints what a user can paste. Every command is one line. The notes that are not empty
// come first: they say which ports are not the usual ones.
func printLines(w io.Writer, g *gateway.Gateway, uri string, notes ...string) {
	fmt.Fprintln(w)
	for _, note := range notes {
		if note != "" {
			fmt.Fprintln(w, note)
		}
	}
	fmt.Fprintf(w, "The console: %s/console/\n", g.REST)
	fmt.Fprintf(w,
		"Mooring is running: REST on %s, gRPC on %s, before the embedded database %s\n",
		g.REST, g.GRPC, uri)
	fmt.Fprintf(w, "The collection %s.%s has %d documents. Ctrl-C stops everything.\n\n",
		sampleDatabase, sampleCollection, sampleSize)
	fmt.Fprintf(w, "# for the examples of the README and docs/, in a second terminal\n"+
		"export MOORING_REST=%s MOORING_GRPC=%s API=%s/v1/databases/%s\n\n",
		g.REST, g.GRPC, g.REST, sampleDatabase)
	for _, l := range lines(g) {
		fmt.Fprintf(w, "# %s\n%s\n\n", l.what, l.command)
	}
}

func lines(g *gateway.Gateway) []line {
	documents := fmt.Sprintf("%s/v1/databases/%s/collections/%s/documents", g.REST,
		sampleDatabase, sampleCollection)
	where := fmt.Sprintf(`"database":"%s","collection":"%s"`, sampleDatabase, sampleCollection)
	post := func(url, body string) string {
		return fmt.Sprintf(`curl -sS --fail-with-body -w '\n' '%s' `+
			`-H 'Content-Type: application/json' -d '%s'`, url, body)
	}
	call := func(method, body string) string {
		return fmt.Sprintf(`%s -d '%s' %s mooring.v1.%s`, grpcurl, body, g.GRPC, method)
	}
	return []line{
		{"one document", post(documents+":findOne", `{"filter":{"_id":7}}`)},
		{
			"a filter, a sort and a page of five; the answer's cursor goes to cursors:next",
			post(documents+":find",
				`{"filter":{"total":{"$gt":300}},"sort":[["total",-1]],"batchSize":5}`),
		},
		{
			"the same as a GET, for a browser's address line",
			fmt.Sprintf(`curl -sS --fail-with-body -w '\n' -G '%s' `+
				`--data-urlencode 'filter={"status":"open"}' -d limit=3`, documents),
		},
		{
			"everything, one document a line",
			fmt.Sprintf(`curl -sS --fail-with-body -N '%s:streamFind' `+
				`-H 'Accept: application/x-ndjson' -H 'Content-Type: application/json' -d '{}'`,
				documents),
		},
		{
			"a list that stays current until Ctrl-C: update an order of it in another terminal",
			fmt.Sprintf(`curl -sS --fail-with-body -N '%s:live' `+
				`-H 'Accept: application/x-ndjson' -H 'Content-Type: application/json' `+
				`-d '{"filter":{"_id":{"$lt":10}},"projection":{"status":1}}'`, documents),
		},
		{
			"insert",
			post(documents+":insertOne",
				`{"document":{"customer":"me","placed":{"$date":"2026-11-20T12:00:00Z"},`+
					`"total":1.5}}`),
		},
		{"update", post(documents+":updateOne",
			`{"filter":{"_id":7},"update":{"$set":{"status":"paid"}}}`)},
		{
			"a transfer in a transaction: both updates take effect, or neither",
			post(g.REST+"/v1/transactions:run", `{"operations":[`+transfer("anna", -30)+","+
				transfer("ben", 30)+`]}`),
		},
		{
			"a command of the database",
			post(fmt.Sprintf("%s/v1/databases/%s:runCommand", g.REST, sampleDatabase),
				`{"command":{"count":"orders"}}`),
		},
		{
			"what gRPC offers; at first Go compiles grpcurl for a minute or two, and lists what",
			fmt.Sprintf("%s %s list", grpcurl, g.GRPC),
		},
		{"one document over gRPC, as JSON", grpcurl + ` -H 'mooring-document-encoding: json'` +
			fmt.Sprintf(` -d '{%s,"filter":{"json":"{\"_id\":7}"}}' %s `+
				`mooring.v1.DocumentService/FindOne`, where, g.GRPC)},
		{"how many there are", call("DocumentService/CountDocuments", fmt.Sprintf(`{%s}`, where))},
	}
}

// transfer returns an operation of a transaction that adds to the balance of an account.
func transfer(id string, amount int) string {
	return fmt.Sprintf(`{"updateOne":{"database":"bank","collection":"accounts",`+
		`"filter":{"_id":"%s"},"update":{"$inc":{"balance":%d}}},"expect":{"matchedCount":1}}`,
		id, amount)
}
