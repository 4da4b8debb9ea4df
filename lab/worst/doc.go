// Package worst sends the gateway the largest requests that it allows, in the shapes that cost it
// most, and says what each takes: the peak of its memory, and its processor time. Each RPC has rows
// for each protocol, made from the descriptors of the API. The short form runs a sample with all
// tests; `make worst` runs everything.
package worst
