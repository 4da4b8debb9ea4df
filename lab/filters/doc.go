// Package filters compares what the gateway's policy decides by a rule's filter with what mingo and
// lungo's mongokit make of the same filter and document. It has tests only.
package filters
