// Package filters compares what service/match, and with it the gateway's policy, makes of a filter
// and a document with what mingo and lungo's mongokit make of them. It has tests only.
package filters
