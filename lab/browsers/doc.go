// Package browsers has tests of clients that were not written for the gateway: pages in Chromium
// (fetch with CORS, NDJSON, EventSource, gRPC-Web and Connect with the libraries of others), and
// client libraries of the Atlas Data API, used as they are. npm fetches what package-lock.json
// lists.
package browsers
