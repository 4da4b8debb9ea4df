// Package overload measures what the driver does to a server that refuses most requests because it
// is overloaded. It has tests only.
package overload
