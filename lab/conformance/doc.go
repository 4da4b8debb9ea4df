// Package conformance runs the specifications' tests that are about data on a real query engine.
// It has tests only.
package conformance
