// Package bson shows how Go programs use core/bson and core/bson/extjson. It has examples alone,
// which are tests:
//
//	go test -v ./examples/bson
package bson
