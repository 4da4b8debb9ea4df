// Package wire compares what Mooring's driver and the official drivers of Go, Python and, where
// commands are lost, Node send for the same operations. It has tests only. differences.md explains
// each difference.
package wire
