// Package dredd has npm's dredd judge openapi.json against what `make run` starts. It has tests
// only.
package dredd
