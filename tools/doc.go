// Package tools checks the scripts of this directory and what calls the targets of the Makefile. It
// has only tests.
package tools
